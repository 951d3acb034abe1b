"""Hostile campaigns: strangers that connect to nodes and send what no honest peer would.

``inputs`` records real connections and makes changed copies of them without end. ``campaign`` starts a cluster, sends
these inputs to its nodes while honest clients publish and subscribe, and finds what the clients notice.

It imports live nodes and clients, their links and their wire format.

Start reading at ``inputs.py``.
"""
