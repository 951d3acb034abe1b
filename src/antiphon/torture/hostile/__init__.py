"""Hostile campaigns: strangers that hold a valid connection, or none, and send what no honest peer would.

``attacks`` has one coroutine per attack on a port of a node. ``campaign`` starts a cluster, lets attackers at it while
clients publish and subscribe, and measures what these notice.

It imports live nodes and clients, their links and their wire format.

Start reading at ``attacks.py``.
"""
