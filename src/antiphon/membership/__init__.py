"""The nodes of a cluster: joining, identifiers, addresses, heartbeats, members that are lost, found and return.

``membership.py`` is what all clusters share. ``full_mesh.py`` connects everybody with everybody, for cubes
(``cube_members.py``) and broker trees (``tree_members.py``); ``partial_view.py`` connects some, for gossip.
``address_book.py`` and ``id_allocation.py`` keep who is where and which identifiers are free.

It imports the kernel, fabrics, runtime, transport, api and storage. Start with ``membership.py``.
"""
