"""The names of the columns of a trace that a judge reads (:mod:`antiphon.trace.store` has them all)."""

from __future__ import annotations

COLUMNS = ["event", "node", "topic", "source", "sequence"]
"""The columns of every row about a publication or a node."""

ORDER = "order"
"""A column that traces of the first schema lack."""

KEYS = "keys"
"""A column for the judge of total order (:mod:`antiphon.audit.total_order`)."""

VALUE = "value"
"""The column that shows how a run ended."""

PEER = "peer"
"""The column with the node that an epoch row is about (:mod:`antiphon.audit.majorities`)."""
