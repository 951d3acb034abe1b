"""The streams of a live node: their files, their replicas, the directory of all streams, and what clients ask of them.

:mod:`antiphon.streams` decides; here are the disk, the links to other nodes and the clock. Start with ``service.py``.
"""
