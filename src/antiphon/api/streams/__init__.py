"""Streams as programs use them: topics with a history, reading it, and consumers; at clients and at nodes.

The leader of a stream answers. :class:`antiphon.api.streams.leader_links.LeaderLinks` finds it, and follows it to
another node. Start with ``stream_user.py``.
"""
