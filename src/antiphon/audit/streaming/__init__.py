"""The audit of a live topic: the messages of all logs, judged as they arrive.

``order_watch`` is the judge: it keeps a vector per log, never looks back, and needs no Spark. ``job`` reads the logs of
all nodes as a stream and stores the judge's state with the offsets.

The judge imports the kernel alone. The job imports the Structured Streaming source (:mod:`antiphon.spark`).

Start reading at ``order_watch.py``.
"""
