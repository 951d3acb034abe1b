"""The network model: delays of links, output servers, loss, duplication and partitions.

``delays`` has the laws by which delays are drawn. ``network`` combines them with all other costs of a hop, and has the
partitions.

Both are compiled and pure: they import the kernel alone. The engine calls them; they know no engine, node or process.

Start reading at ``network.py``, whose first lines give the formula of a hop.
"""
