"""How hosts put the broker tree together: its options, its process on a live node, and its protocols in scenarios.

``settings`` describes the options once, for scenarios and live nodes. ``scenario`` builds processes for the simulator.
``implementation`` lists everything for hosts (:class:`antiphon.fabrics.fabric.Implementation`).

It imports the fabric and the contracts beside it, and no host. Start reading at ``implementation.py``.
"""
