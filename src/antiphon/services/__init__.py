"""Replicated services: a class with typed operations, each with its own order, over a store at every replica.

An application declares a service. Its operations are messages on a topic, about the keys that their arguments name;
every replica applies what is delivered to it, in that order, to a store of its own. Start reading at
``declaration.py``, which is the interface that applications write against. ``marks.py`` has its decorators;
``description.py`` checks a declaration and describes it to everything else. ``calls.py`` has the bytes of calls and
results, and applies one call to a store. ``store.py`` is what operations see of a store, what a store must offer, and
the store in memory.

A replica is ``replica.py`` over ``replica_store.py``, with what it has applied (``applied.py``), what it remembers
(``recent.py``) and what it is sent (``frames.py``). Nothing of these waits, looks at a clock or opens anything: live
replicas and simulated ones share them, and they import ``kernel`` alone.

``serving.py`` runs a replica at a node or client: ``live_replica.py`` follows the topic, ``joining.py`` brings a
newcomer to the state, ``backends`` has the stores. ``proxy.py`` is the service for callers. These may import
what programs on nodes and clients stand on.
"""

from __future__ import annotations
