"""The permanent identifier of a broker of a tree, kept beside its log, and where it has last seen the others.

A broker that returns with its log is who it was: it has its identifier and its vote, and says in its first frame to
each other broker which incarnation of it this is. It finds the others by the addresses that it has kept, and by the
table of founders. A broker without its log is somebody new, even at the same address.

A broker that has returned has no identifiers to give to newcomers, since what its earlier life had given is not on
disk. A newcomer that asks it is sent on to others, or it takes a new block of them.

The incarnation is on disk before the broker says it: of two lives with one incarnation nobody could tell the later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.fabrics.tree.messages import BrokerRecord
from antiphon.membership.address_book import BLOCK, BLOCKS_FIRST
from antiphon.membership.host import Facts
from antiphon.membership.messages import PlaceResponse

FACT: Final = "broker"
"""Under this name the identity is kept."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """The identifier of a broker, and the addresses of the others by their identifiers."""

    identifier: int
    addresses: dict[int, str]
    incarnation: int = 0
    founders: list[str] = []
    """The founders of the tree as they were listed; empty if that is not known."""


def kept_identity(facts: Facts) -> Identity | None:
    """The earlier identity of this broker, if it has its log; it belongs to the records of the process."""
    kept = facts.read(FACT) if facts.has_journal else None
    records = [record for record in facts.journal_records() if isinstance(record, BrokerRecord)] if kept else []
    if not kept or not records:
        return None
    identity = msgspec.msgpack.decode(kept, type=Identity)
    # Versions before this one kept the incarnation in the journal alone.
    last = max(int(record.incarnation) for record in records)
    return msgspec.structs.replace(identity, incarnation=max(identity.incarnation, last))


def keep_identity(facts: Facts, identity: Identity) -> None:
    """Write down who this broker is, if it can return."""
    if not facts.has_journal:
        return
    encoded = msgspec.msgpack.encode(identity)
    if facts.read(FACT) != encoded:
        facts.put(FACT, encoded)
        facts.commit_soon()


def foreign_founders(identity: Identity, founders: Sequence[str]) -> str:
    """Why a broker cannot go on as who it was among these founders: none of them is of its tree; empty if it can."""
    if not founders or not identity.founders or set(founders) & set(identity.founders):
        return ""
    return (
        f"the data directory belongs to the tree of the brokers at {', '.join(identity.founders[:8])}, and this broker "
        f"is started for that of {', '.join(founders[:8])}; start it with its own data directory, or with an empty one"
    )


def place_of(identity: Identity, highest: int) -> PlaceResponse:
    """The place of a broker that returns, if this is the highest identifier that it has heard of."""
    blocks = (highest - BLOCKS_FIRST) // BLOCK + 1 if highest >= BLOCKS_FIRST else 0
    return PlaceResponse(identity.identifier, 0, 0, [], "", blocks)
