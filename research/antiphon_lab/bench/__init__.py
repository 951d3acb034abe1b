"""Benchmarks: fixed amounts of work, defined so that anybody can repeat them.

``reference.py`` is the simulator's work, ``simpy_rival.py`` the same on SimPy; ``live_*`` measure live nodes,
``*_bench`` Spark; ``peers`` puts the same traffic through Antiphon and other systems.
"""
