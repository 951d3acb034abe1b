"""Universes: the subscriptions of systems with many topics; drawn by a law or taken from data sets.

``universe.py`` holds one in memory, ``files.py`` on disk; ``law.py`` draws, ``source.py`` and ``method.py`` take
samples of raw data; ``jobs.py``, ``statistics.py`` and ``stan_job.py`` do the same on Spark; ``figures.py`` and
``table.py`` are the published experiments about them.
"""
