"""Repair on the cube: trees lead around lost nodes, and members give each other missing publications.

``anti_entropy.py`` decides when members compare digests and ``retransmission.py`` which publications they send.
``tree_repair.py`` continues a wave without a lost node, ``delivery.py`` handles publications at a returning member, and
``log_recovery.py`` reads older publications from the log. Start with ``anti_entropy.py``; the argument is in
``docs/proofs/cube-through-faults.md``.
"""
