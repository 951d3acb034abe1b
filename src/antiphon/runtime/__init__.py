"""What every part of the live host stands on: clocks, tasks, log lines, errors, TOML tables, questions to many peers.

These modules know no topic, no fabric and no socket. They import the kernel only.
Start with ``errors.py``, which has what can go wrong between an application and a node.
"""
