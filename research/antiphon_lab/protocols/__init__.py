"""Published protocols and rivals that no live node runs, for simulations; compiled like those of the product.

``cube``: VCube-PS as published, its rivals SRPT-S and SRPT-B, causal aggregation by vectors. ``tree``: Ginger as
published. ``gossip``: StaN, other peer sampling services, and the rivals of BRISA. They import ``antiphon.kernel``,
``antiphon.orders`` and ``antiphon.fabrics``. Each module says which sections of which document it follows, and where it
departs from them. :mod:`antiphon_lab.scenarios` says under which names scenarios find them.
"""
