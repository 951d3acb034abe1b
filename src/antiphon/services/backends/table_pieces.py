"""The form of tables in a snapshot: pieces, each with the kind of database that can take it."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.services.errors import TablesError


class TablePiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a table, in a form that only its kind of database knows."""

    kind: str
    body: bytes


encode: Final = msgspec.msgpack.Encoder().encode
_pieces: Final = msgspec.msgpack.Decoder(TablePiece)


def wrapped(kind: str, content: msgspec.Struct) -> bytes:
    """A piece for databases of a kind."""
    return encode(TablePiece(kind, encode(content)))


def unwrapped(kind: str, piece: bytes) -> bytes:
    """The content of a piece; :class:`TablesError` if it is for another kind of database."""
    try:
        found = _pieces.decode(piece)
    except msgspec.MsgspecError as error:
        raise TablesError(f"a table of a snapshot cannot be read: {error}") from error
    if found.kind != kind:
        raise TablesError(
            f"the snapshot has tables of {found.kind}, and this replica is on {kind}; serve a service with tables of "
            "its own on one kind of database"
        )
    return found.body


def quoted(name: str) -> str:
    """A name within a statement."""
    return '"' + name.replace('"', '""') + '"'
