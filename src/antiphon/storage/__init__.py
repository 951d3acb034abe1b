"""The data that outlives a process: the durable log, group commit, checkpoints, and reading all of it back.

``log.py`` is the log: append, commit, read, trim. ``sqlite.py`` is its file and the errors of that file, and
``log_formats.py`` has the bytes. ``group_commit.py`` syncs once for many batches. ``checkpoint.py`` stores frontiers of
topics. ``log_reader.py`` reads backwards for peers that miss something. ``log_server.py`` serves ranges to clients.
To change the store, change ``sqlite.py``.

It imports the kernel, the runtime, transport and api. Start with ``log.py``.
"""
