"""The gateway of a node: serves its clients over their connections.

``gateway.py`` accepts clients, ``client_session.py`` is one connected client, ``client_relay.py`` sends it what its
subscriptions receive, ``client_requests.py`` answers its requests about the node. Start with ``client_session.py``.
"""
