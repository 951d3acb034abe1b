"""A thin client of a node: the same calls as a node, and it goes on at another node when its own is gone.

``client.py`` is the client, ``connection.py`` its connection, ``server_pool.py`` where the next node could be,
``client_subscriptions.py`` what it listens to across nodes, ``publishing.py`` what it hands in,
``idempotent_producer.py`` writes a series exactly once, ``remote_log.py`` reads the log of its node.

It imports the kernel, runtime, transport, api and sessions; it needs neither pyarrow nor numpy. Start with
``client.py``.
"""
