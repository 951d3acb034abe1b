"""Hostile campaigns: strangers connect to nodes and send input that no honest peer would send.

``inputs`` records real connections and makes an endless stream of changed copies of them. ``campaign`` starts a
cluster, sends these inputs to its nodes while honest clients publish and subscribe, and reports what the clients
notice.

It imports live nodes and clients, their links and their wire format.

Start reading at ``inputs.py``.
"""
