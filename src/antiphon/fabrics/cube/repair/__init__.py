"""What the cube adds where nodes fail: trees that lead around lost nodes, and members that give each other what is
missing.

``anti_entropy.py`` decides when members compare what they have, ``retransmission.py`` what they send,
``tree_repair.py`` how a wave goes on without a node, ``delivery.py`` what a returning member does with what it gets,
``log_recovery.py`` reads what is older from the log. Start with ``anti_entropy.py``; the argument is in
``docs/proofs/cube-through-faults.md``.
"""
