"""Clients in simulated clusters: they connect to a node, publish, subscribe, lose their node and move to another one.

``serving_node.py`` is a node with a gateway, ``client.py`` a client with its application, ``writer.py`` an exactly-once
writer, ``world.py`` runs a schedule.
Both ends are those of live programs (:mod:`antiphon.sessions`). :mod:`antiphon.audit.clients` judges what clients were
promised.
"""
