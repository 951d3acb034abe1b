"""The deterministic host: processes in virtual time, with one seed, in one thread.

``network`` models the cost of a hop and its faults. ``engine`` takes events from a calendar and passes them to
processes. ``scenario`` reads a TOML file, builds the system that it describes, runs it, and judges the run. ``explore``
follows every schedule of a small system instead of one.

The packages build on each other in this order. They import the kernel, orders, fabrics and the trace, and nothing that
has side effects of its own: no socket, clock, thread or global random generator. Campaigns of random scenarios are in
:mod:`antiphon.torture`.

Start reading at ``engine/engine.py``, then ``scenario/run.py``.
"""
