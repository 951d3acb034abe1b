"""The engine: a calendar of events, the nodes, and the links between them.

``engine`` runs a simulated system; ``node`` is the environment of a process. ``calendar`` holds future events, and
``events`` defines them. ``link_watches`` and ``reachability`` tell processes about lost and found peers;
``connections`` keeps copies on a link in order. ``actions`` are the operations and faults that a scenario schedules,
and ``disks`` is the state that survives a crash.

Almost all of it is compiled. It imports the kernel, the fabrics' topology, the trace's recorder and
:mod:`antiphon.simulator.network`, never a scenario.

Start reading at ``engine.py``.
"""
