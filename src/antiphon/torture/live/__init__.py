"""Live campaigns: faults in processes, disks and connections of a cluster on this machine, while clients publish.

``campaign`` runs one. ``faults`` chooses what goes wrong; ``power`` and ``proxies`` do it to disks and connections.
``load`` and ``crowd`` are programs that publish and subscribe, ``loads`` and ``crowds`` start them. What they see goes
into journals (``journal``); ``judging`` makes traces of these and ``audit`` has them judged. ``rounds`` are small
clusters that lose nodes for good; ``overload`` asks a cluster for more than it can sustain.

It imports live nodes, clients and the trace. The judge of a trace is passed in.

Start reading at ``campaign.py``.
"""
