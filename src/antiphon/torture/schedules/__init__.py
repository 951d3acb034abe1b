"""Random schedules: the scenario of a seed, for each fabric.

``operations`` has what schedules are made of and how they become scenarios. The modules named after a fabric draw its
schedules; ``cube_busy``, ``cube_beyond``, ``gossip_cut``, ``gossip_rare``, ``tree_returns`` and ``standstills`` draw
what is rare. ``every_fabric`` puts them together, makes some harder, and lets all end in ``last_words``.

They import scenarios and protocol options of the simulator, and draw from streams of their own seed, so that a seed
names the same schedule for ever.

Start reading at ``operations.py``, then ``cube.py``.
"""

from antiphon.torture.schedules.every_fabric import ALL, SCHEDULES

__all__ = ["ALL", "SCHEDULES"]
