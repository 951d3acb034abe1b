"""Helpers of every part of the live host: clocks, tasks, log lines, errors, TOML tables, requests to many peers.

These modules know no topic, no fabric and no socket. They import the kernel only.
Start with ``errors.py``, which has the errors between an application and a node.
"""
