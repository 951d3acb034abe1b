"""The interface of an application, the same at a node and at a client: publishing, receipts, subscriptions, batches.

``publisher.py`` and ``outbox.py`` turn what is published in one turn of the loop into batches (``batch.py``, encoded by
``batch_codec.py`` from ``columns.py``); ``receipts.py`` says what became of it. ``subscription.py`` keeps what came,
and ``iteration.py`` has the loops with which applications read it. ``pubsub.py`` has the calls that nodes and clients
share; ``lifecycle.py`` closes them.

It imports the kernel and the runtime. Start with ``pubsub.py``.
"""
