"""Both ends of a client's connection as pure state machines: how a client resumes at another node.

Nothing accepted is lost, nothing is duplicated or out of order, and gaps are told. ``node_end.py`` is the node's end of
all its clients, ``resume.py`` the publications of one client; ``host.py`` is what they ask of a node. ``unacked.py`` is
the client's memory of what is not safe. ``dedup.py`` and ``replay_buffer.py`` are what nodes remember of topics,
``writers.py`` and ``producer_state.py`` take each batch of an idempotent producer once, ``backlog.py`` bounds what
clients have handed in, ``steps.py`` lets protocols wait. ``client_messages.py`` and ``peer_messages.py`` describe what
goes over the wire.

It imports the kernel, fabrics and membership. To fix a bug in reconnection, start with ``node_end.py``.
"""
