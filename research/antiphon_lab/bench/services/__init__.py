"""A small bank as a replicated service, and the same bank on PostgreSQL alone and on three servers with synchronous
replication: operations a second and latency, by order and number of keys.

``measure.py`` starts servers and callers; ``worker.py`` is what runs in their processes; ``bank.py`` is the service;
``database.py`` runs PostgreSQL.
"""
