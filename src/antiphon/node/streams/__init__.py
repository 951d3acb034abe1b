"""The streams of a live node: their host, and the way of the node's program to streams at other nodes.

:mod:`antiphon.streams` decides; here are the disk, the links to other nodes and the clock.
"""
