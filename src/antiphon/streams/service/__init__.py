"""The streams of one node: which it keeps, the directory of all of them, and what programs ask about them.

These modules decide; ``host.py`` says what they need of a node. A live node gives it to them
(:mod:`antiphon.node.streams`), and so does a simulated one (:mod:`antiphon.simulator.streams`). Start with
``service.py``.
"""
