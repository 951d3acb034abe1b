"""The engine: a calendar of events, the nodes, and the links between them.

``engine`` runs a simulated system; ``node`` is the environment that a process sees. ``calendar`` and ``events`` hold
what is to happen. ``links`` and ``connections`` know who watches whom, and what does not overtake. ``actions`` is what
a scenario may do to a system while it runs, and ``disks`` what outlives a crash.

Almost all of it is compiled. It imports the kernel, the fabrics' topology, the trace's recorder and
:mod:`antiphon.simulator.network`, never a scenario.

Start reading at ``engine.py``.
"""
