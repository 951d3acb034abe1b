"""What an application holds, the same at a node and at a client: publishing, receipts, subscriptions, batches.

``publisher.py`` and ``outbox.py`` turn what is published in one turn of the loop into batches (``batch.py``, encoded by
``batch_codec.py``); ``receipts.py`` says what became of it; ``subscription.py`` is the iterator that applications read;
``pubsub.py`` has the calls that nodes and clients share; ``lifecycle.py`` closes them.

It imports the kernel and the runtime. Start with ``pubsub.py``.
"""
