"""``antiphon demo``: the tour of the system, in stages; ``command.py`` has the list of stages."""
