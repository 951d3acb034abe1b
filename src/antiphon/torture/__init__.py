"""Torture: campaigns of random schedules and faults, judged by independent checkers.

``schedules`` draws a scenario from a seed, one module per fabric and kind of trouble. ``campaign`` runs many seeds and
adds up what was found; ``results`` writes that down while it grows, ``rates`` says what it means. ``shrinking`` makes a
failing schedule small. ``live`` does the same to processes, disks and connections of this machine, and ``hostile``
sends nodes what no honest peer would.

Torture imports the hosts, the trace and the public interface. No module below it imports it; the pipeline shares
campaigns out, and commands print them.

Start reading at ``campaign.py``; for live nodes, at ``live/campaign.py``.
"""
