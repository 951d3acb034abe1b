"""Names of the columns of a trace that tell its history (:mod:`antiphon.trace.store` has them all)."""

from __future__ import annotations

COLUMNS = ["event", "node", "topic", "source", "sequence"]
"""What every row about a publication or a node has."""

ORDER = "order"
"""A column that traces of the first schema do not have."""

KEYS = "keys"
"""A column for the judge of total order (:mod:`antiphon.audit.total_order`)."""

VALUE = "value"
"""A column that says how a run ended."""

PEER = "peer"
"""A column that says of whom an epoch speaks (:mod:`antiphon.audit.majorities`)."""
