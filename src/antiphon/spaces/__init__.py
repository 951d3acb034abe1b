"""Spaces: causal order across topics, above any fabric that orders each topic by itself.

A space is a set of topics. Each fabric keeps causal order within a topic; this package adds that no node delivers a
message of a space after one that follows it, whatever their topics. A node waits only for topics that it is subscribed
to. :mod:`antiphon.spaces.process` stands between the process of a fabric and its host;
:mod:`antiphon.spaces.space` is one space at one node, made of three parts:

- :mod:`antiphon.spaces.dependencies`: what the next publication of this node names of other topics;
- :mod:`antiphon.spaces.barrier`: what has arrived and waits for other topics;
- :mod:`antiphon.spaces.stability`: which publications all members of their topic have, so that nobody names them.

:mod:`antiphon.spaces.lost_sources` gives up publications of nodes that are lost.

``docs/proofs/spaces.md`` has the rules and the proof. Pure: it imports the kernel alone.
"""
