"""Random schedules: the scenario of a seed, for each fabric.

``operations`` defines the operations of a schedule and turns them into a scenario. Modules named after a fabric draw
its schedules; ``cube_busy``, ``cube_overflow``, ``gossip_partition``, ``gossip_rare``, ``tree_restarts`` and
``suspected_pauses`` draw rare situations. ``families`` lists the kinds of schedules, ``extra_faults`` adds faults that
all fabrics have in common, ``last_words`` is how every schedule ends, and ``every_fabric`` puts them together.

They import scenarios and protocol options of the simulator, and draw from random streams of their own seed, so that a
seed names the same schedule for ever.

Start reading at ``operations.py``, then ``cube.py``.
"""

from antiphon.torture.schedules.every_fabric import ALL, SCHEDULES

__all__ = ["ALL", "SCHEDULES"]
