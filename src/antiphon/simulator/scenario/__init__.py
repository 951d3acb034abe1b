"""Scenarios: what users write in TOML files, checked, built, run and judged.

``scenario`` has the tables of a file as types. ``file`` reads and checks it, with ``toml_document``, ``topics`` and
``walk``; ``writer`` writes one. ``workload`` and ``subscriptions`` say what applications do. ``protocols`` has every
protocol that a scenario can name. ``run`` puts the engine, the network and the processes together and runs them.
``promises`` says what is promised to a run, ``verdict`` whether it kept that.

Scenarios import the engine and the network. Schedules, sweeps and experiments are made of scenarios and stand above.

Start reading at ``scenario.py``, then ``run.py``.
"""
