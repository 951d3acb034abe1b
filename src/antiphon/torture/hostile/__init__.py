"""Hostile campaigns: strangers, tenants with a token and a node of the cluster attack nodes beside honest clients.

``inputs`` records real connections and makes an endless stream of changed copies of them. ``campaign`` starts a
cluster, sends these inputs to its nodes while honest clients publish and subscribe, and reports what the clients
notice.

It imports live nodes and clients, their links and their wire format.

``tenants`` are the attacks of a client that has a token, ``lies`` the messages of a node that lies; both run in
``tenant_process``, and ``tenant_campaign`` judges what honest clients notice.

Start reading at ``inputs.py``.
"""
