"""The options for writing topics in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.api.topic_names import checked_name
from antiphon.kernel.errors import UsageError
from antiphon.spark.options import ACCESS_OPTIONS, Access, Given, access_from

WRITE_OPTIONS: Final = ("topic", "order", "writeId", "durable", "timeoutSeconds")
ORDERS: Final = ("fifo", "causal", "total")
DEFAULT_ORDER: Final = "causal"
TIMEOUT_SECONDS: Final = 60
NAME_CHARACTERS_AT_MOST: Final = 120


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a write.

    ``topic`` applies to all rows, else each row names its own. ``write_id`` identifies a batch write that is run again.
    ``durable`` refuses nodes without a log. ``timeout_seconds`` is the longest time for one answer of a node.
    """

    access: Access
    topic: str | None = None
    order: str = DEFAULT_ORDER
    write_id: str | None = None
    durable: bool = True
    timeout_seconds: int = TIMEOUT_SECONDS


def write_options(options: Mapping[str, str], is_stream: bool) -> WriteOptions:
    """All options for writing, checked as far as possible without a node."""
    given = Given(options, (*ACCESS_OPTIONS, *WRITE_OPTIONS))
    topic, order, write_id = given.text("topic"), given.text("order") or DEFAULT_ORDER, given.text("writeId")
    if order not in ORDERS:
        raise UsageError(
            f"option 'order' is {', '.join(ORDERS)}, not {order!r}; repetitions are recognised only with an order"
        )
    if is_stream and write_id is not None:
        raise UsageError("option 'writeId' is for batch writes: a stream is identified by its checkpoint; leave it out")
    if write_id is not None and not 0 < len(write_id) <= NAME_CHARACTERS_AT_MOST:
        raise UsageError(f"option 'writeId' has 1 to {NAME_CHARACTERS_AT_MOST} characters, not {len(write_id)}")
    return WriteOptions(
        access=access_from(given),
        topic=None if topic is None else checked_name(topic),
        order=order,
        write_id=write_id,
        durable=given.truth("durable", True),
        timeout_seconds=given.number("timeoutSeconds", 1) or TIMEOUT_SECONDS,
    )
