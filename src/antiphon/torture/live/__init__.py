"""Live campaigns: faults in processes, disks and connections of a cluster on this machine, while clients publish.

``campaign`` runs one. ``faults`` chooses what goes wrong; ``power`` and ``proxies`` do it to disks and connections.
``load`` and ``crowd`` are programs that publish and subscribe, ``loads`` and ``crowds`` start them. What they see goes
into journals (``journal``), and ``judging`` makes traces of these. ``rounds`` are older, smaller campaigns of single
checks, ``overload`` fills a cluster that cannot keep up.

It imports live nodes, clients and the trace. The judge of a trace is passed in.

Start reading at ``campaign.py``.
"""
