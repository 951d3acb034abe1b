"""The audit of a live topic while it runs: messages of all logs, judged as they come.

``order_watch`` is the judge: it keeps a vector per log, never looks back, and needs no Spark. ``job`` reads the logs of
all nodes as a stream and keeps what the judge knows with the offsets.

The judge imports the kernel alone. The job imports the Structured Streaming source (:mod:`antiphon.spark`).

Start reading at ``order_watch.py``.
"""
