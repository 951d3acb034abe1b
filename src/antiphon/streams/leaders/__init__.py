"""The leader of a history: how it is elected, how it begins, and how far the other replicas have come.

``election.py`` elects it. ``gathering.py`` begins: the new leader asks what the others were delivered, and
``merging.py`` puts that into one order. ``leading.py`` serves the other replicas and settles entries; start there. It
imports the modules of :mod:`antiphon.streams` that describe a replica and its messages.
"""
