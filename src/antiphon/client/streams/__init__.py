"""Streams at a client: topics with a history, reading it, and consumers.

The leader of a stream answers. :class:`antiphon.client.streams.leader_links.LeaderLinks` finds it, and follows it to
another node. Start with ``consumption.py``.
"""
