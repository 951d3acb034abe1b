"""``antiphon demo``: the tour of the system, in stages; ``command.py`` lists the stages."""
