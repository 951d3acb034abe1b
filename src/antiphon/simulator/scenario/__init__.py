"""Scenarios: TOML files that describe a run; read, checked, built, run and judged.

``scenario`` has the tables of a file as types. ``file`` reads and checks it, with ``toml_document``, ``topics`` and
``walk``; ``writer`` writes one. ``workload`` and ``subscriptions`` plan the operations of applications. ``protocols``
has every protocol that a scenario can name. ``run`` combines the engine, the network and the processes, and runs them.
``promises`` lists the promises that apply to a run, and ``verdict`` judges them.

Scenarios import the engine and the network. Schedules, sweeps and experiments are made of scenarios and stand above.

Start reading at ``scenario.py``, then ``run.py``.
"""
