"""The network model: delays of links, output servers, loss, duplication and partitions.

``delays`` has the laws by which delays are drawn. ``network`` puts them together with everything else that a hop costs,
and has the partitions.

Both are compiled and pure: they import the kernel alone. The engine asks them; they know no engine, no node and no
process.

Start reading at ``network.py``, whose first lines give the formula of a hop.
"""
