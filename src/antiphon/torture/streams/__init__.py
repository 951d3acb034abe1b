"""Campaigns of streams: whole nodes that keep the history of a topic, and programs that publish, consume and die.

Nodes are those of :mod:`antiphon.simulator.clients` with the streams of live nodes. Programs run the calls of live
clients (:mod:`antiphon.api.streams`) on a virtual event loop. :mod:`antiphon.audit.streams` judges.
"""
