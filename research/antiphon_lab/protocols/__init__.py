"""Published protocols and rivals that no live node runs, for simulations.

``cube``: VCube-PS as published, its rivals SRPT-S and SRPT-B, causal aggregation by vectors. ``tree``: Ginger as
published. ``gossip``: StaN, other peer sampling services, and the rivals of BRISA. ``scenarios.py`` says under which
names scenarios find them. They import ``antiphon.kernel``, ``antiphon.orders``, ``antiphon.fabrics`` and, for
scenarios, ``antiphon.simulator``. Each module says which sections of which document it follows, and where it departs
from them.
"""
