"""Rounds: small live clusters that lose nodes for good, one after the other, each judged by itself.

``round`` starts a cluster, kills nodes while clients publish, and judges the traces of the rest. ``tree`` and
``gossip`` are its variants for their fabrics. ``listeners`` judges the clients of a round.

They import live nodes and clients, and modules that campaigns share (:mod:`antiphon.torture.live`).

Start reading at ``round.py``.
"""
