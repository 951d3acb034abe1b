"""The durable log of a node: what was delivered on each topic, in that order, with offsets and times.

``durable`` is the log, ``topic`` what it knows and keeps of each topic, ``store`` its directory on disk and everything
that can be wrong with it, ``formats`` the bytes and their checksums.
"""

from antiphon.live.log.durable import MAXIMAL_BATCH_BYTES, DurableLog
from antiphon.live.log.formats import Entry, OffsetRemovedError
from antiphon.live.log.topic import Retention, TopicSize

__all__ = ["MAXIMAL_BATCH_BYTES", "DurableLog", "Entry", "OffsetRemovedError", "Retention", "TopicSize"]
