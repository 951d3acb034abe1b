"""``antiphon torture``: campaigns in the simulator, on live nodes, and by hostile peers; ``command.py`` has the options."""
