"""What outlives a process: the durable log, group commit, checkpoints, and reading all of it back.

``log.py`` is the log, in the terms that others use; ``sqlite.py`` its file and what may be wrong with it,
``log_formats.py`` its bytes; ``group_commit.py`` syncs once for many; ``checkpoint.py`` keeps how far topics had come;
``log_reader.py`` reads backwards for peers that miss something; ``log_server.py`` serves ranges to clients. To change
the store, change ``sqlite.py``.

It imports the kernel, the runtime, transport and api. Start with ``log.py``.
"""
