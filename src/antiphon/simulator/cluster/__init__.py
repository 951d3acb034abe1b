"""Whole nodes in the simulator: membership and process of a node over connections between addresses, in virtual time.

``network.py`` has the connections, ``node.py`` one life of a node, ``disk.py`` what outlives it, ``world.py`` the clock
and all of it together. The engine beside it (``simulator/engine``) runs processes whose identifiers and peers are
given; here nodes join, leave, crash, return and are cut off, and find their identifiers and peers themselves.
"""
