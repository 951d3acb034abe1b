"""``antiphon torture --live --consumers``: programs with named consumers, while nodes and programs are killed.

``campaign`` kills and heals, ``programs`` publish and work in processes of their own, ``records`` is what they write
down, and ``judge`` says which promises were broken: it reads records and the history, and knows nothing of nodes. It
may import what a client may, and the processes of :mod:`antiphon.node.local_cluster`. Start with ``campaign``.
"""
