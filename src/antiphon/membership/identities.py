"""The permanent identifier of a broker of a tree, kept beside its log, and where it has last seen the others.

A broker that returns with its log is who it was: it has its identifier and its vote, and says in its first frame to
each other broker which incarnation of it this is. It finds the others by the addresses that it has kept, and by the
table of founders. A broker without its log is somebody new, even at the same address.

A broker that has returned has no identifiers to give to newcomers, since what its earlier life had given is not on
disk. A newcomer that asks it is sent on to others, or it takes a new block of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.fabrics.tree.messages import Standing
from antiphon.membership.address_book import BLOCK, BLOCKS_FIRST
from antiphon.storage.disk import Disk
from antiphon.transport.peer_messages import PlaceResponse

FACT: Final = "broker"
"""Under this name the identity is kept."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """Who a broker is, and the addresses of the others by their identifiers."""

    identifier: int
    addresses: dict[int, str]


def kept_identity(disk: Disk) -> Identity | None:
    """Who this broker was, if it has its log; the identity and the process's own records belong together."""
    kept = None if disk.store is None or disk.journal is None else disk.store.get(FACT)
    if not kept or disk.journal is None:
        return None
    if not any(isinstance(record, Standing) for record in disk.journal.records()):
        return None
    return msgspec.msgpack.decode(kept, type=Identity)


def keep_identity(disk: Disk, identity: Identity) -> None:
    """Write down who this broker is, if it can return."""
    if disk.store is None or disk.journal is None or disk.commit is None:
        return
    encoded = msgspec.msgpack.encode(identity)
    if disk.store.get(FACT) != encoded:
        disk.store.put(FACT, encoded)
        disk.commit.soon()


def place_of(identity: Identity, highest: int) -> PlaceResponse:
    """The place of a broker that returns, if this is the highest identifier that it has heard of."""
    blocks = (highest - BLOCKS_FIRST) // BLOCK + 1 if highest >= BLOCKS_FIRST else 0
    return PlaceResponse(identity.identifier, 0, 0, [], "", blocks)
