"""Total order per key on the cube: a lock manager grants keys, and each publisher locks them along its own tree.

``ordering.py`` is the protocol without failures, ``lock_manager.py`` its queue; ``repair.py``, ``quorum.py``,
``electorate.py`` and ``incarnations.py`` keep it through crashes and partitions. Start with ``ordering.py``; the
arguments are in ``docs/proofs/cube-total-order.md`` and ``docs/proofs/cube-voters.md``.
"""
