"""A live node, composed of its parts: loop, topics, subscriptions, gateway, log, status.

``node.py`` puts the parts together; ``loop.py`` is the turn in which everything happens; ``environment.py`` is what a
process of a fabric sees; ``gateway.py`` serves clients; ``settings.py`` is what a node is told; ``fabrics.py`` builds
the process. ``local_cluster.py`` starts nodes as processes.

It imports all of the live host but the client. Start with ``node.py``, then ``loop.py``.
"""
