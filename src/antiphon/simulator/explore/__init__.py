"""Exploration: every schedule of a small system, in every order of arrival, instead of one.

``explorer`` follows all orders in which the messages of a few processes can arrive, with an oracle beside each.
``crashes`` adds nodes that crash, forget what was not on disk, and restart.
``cluster_world`` drives whole nodes with their membership, which may join meanwhile, and a client by choices;
``cluster_search`` follows them all.

``explorer`` and ``crashes`` import the kernel and the trace's oracle, and run processes without an engine. Tests and
``antiphon explore`` call them.

Start reading at ``explorer.py``.
"""
