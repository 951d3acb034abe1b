"""``antiphon torture``: campaigns in the simulator, on live nodes and by hostile peers; see ``command.py``."""
