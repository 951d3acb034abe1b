"""Places: how far nodes are from each other, and which identifiers on the cube follow from that. Pure.

Two identifiers that differ in one bit are neighbours on the cube, and every message travels between neighbours. So a
cluster is fast where neighbours on the cube are near each other in the world. The parts of this package measure and
improve that; they import ``kernel``, and the shape of the cube from ``fabrics``.

Start reading at ``tree_cost.py``: what a choice of identifiers costs. ``delay_matrix.py`` reads distances that others
have measured, ``cities.py`` is a table of distances of our own, and ``assignment.py`` chooses the identifiers of nodes
that are all known. ``newcomers.py`` chooses one identifier at a time, for nodes that come one after the other.
"""
