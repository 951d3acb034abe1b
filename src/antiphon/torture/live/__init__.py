"""Live campaigns: faults in processes, disks and connections of a cluster on this machine, while clients publish.

``campaign`` runs one. ``faults`` draws faults; ``power`` and ``proxies`` cause those of disks and connections. ``load``
and ``crowd`` are programs that publish and subscribe; ``load_process`` and ``crowd_process`` start them. These programs
write journals (``journal``); ``judging`` turns the journals into traces, and ``audit`` has them judged. ``rounds`` are
small clusters that lose nodes for good; ``overload`` asks a cluster for more than it can sustain.

The package imports live nodes, clients and the trace. The judge of a trace is passed in.

Start reading at ``campaign.py``.
"""
