"""The history of a topic: kept by several nodes, numbered once, the same everywhere.

A fabric delivers the publications of a topic to all its members, each in an order that it promises. A *stream* makes
one history of them: some nodes are its **replicas**, one of these **leads**, and the leader gives each message a
**position** in the order in which publications were delivered to it. So the history is a linear extension of the
topic's order. A position is settled when a majority of the replicas has the message, and the position, on disk.

Everything here is pure: no clock, socket, file or thread. :mod:`antiphon.streams.replica` is the place to start
reading; :mod:`antiphon.streams.host` is its contract with the host; ``docs/proofs/streams.md`` argues why it is
right. It imports ``kernel``, and the messages of ``membership``.
"""
