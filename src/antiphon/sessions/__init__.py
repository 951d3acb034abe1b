"""The node's memory of clients: how a client goes on at another node, and nothing is lost, doubled or reordered.

``client_sessions.py`` answers clients that come from elsewhere, ``resume.py`` puts their batches in order again,
``writers.py`` and ``producer_state.py`` take each batch of an idempotent producer once; ``unacked.py`` is the client's
side, and ``backlog.py`` bounds what clients have handed in. To mend a bug in reconnection, start with ``resume.py`` and
``unacked.py``.

It imports the kernel, fabrics, runtime, transport, api and storage.
"""
