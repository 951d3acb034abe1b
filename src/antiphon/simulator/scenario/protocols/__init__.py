"""The protocols that a scenario can name, their options, and how their processes are built.

``registry`` has one entry per protocol: a :class:`~antiphon.simulator.scenario.protocols.protocol.Protocol` with its
fabric, its options, its capabilities, and a function that prepares a run. ``options`` are the tables
``[protocol-options]``. The other modules build processes, one module per family of protocols.

They import fabrics and orders, and the types of a scenario. A new protocol is one entry here.

Start reading at ``registry.py``.
"""
