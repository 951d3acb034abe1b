"""Torture: campaigns of random schedules and faults, judged by independent checkers.

``schedules`` draws a scenario from a seed, one module per fabric and kind of fault. ``campaign`` runs many seeds,
``tally`` adds up their outcomes, ``results`` writes findings to disk at once, and ``rates`` computes failure rates.
``shrinking`` makes a failing schedule small. ``live`` does the same to processes, disks and connections of this
machine, and ``hostile`` sends nodes input that no honest peer would send.

Torture imports the hosts, the trace and the public interface. No module below it imports it; the pipeline distributes
campaigns, and commands print them.

Start reading at ``campaign.py``; for live nodes, at ``live/campaign.py``.
"""
