"""Benchmarks: fixed amounts of work, defined so that they can be repeated elsewhere.

``reference.py`` is the work of the simulator, ``simpy_rival.py`` the same on SimPy; ``live_*`` measure live nodes,
``*_bench`` Spark; ``peers`` sends the same traffic through Antiphon and other systems.
"""
