"""The laboratory's protocols in scenarios: the options that a file may give, and the processes built from them.

``registry.py`` has the names that scenarios use; an entry point makes it known to the simulator.
``gossip_schedules.py`` draws random schedules for the rivals of BRISA.
"""
