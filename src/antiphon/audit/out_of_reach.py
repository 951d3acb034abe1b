"""Finds weaker publications that began out of reach of a total one: while every node that had it was down.

On a cube a node may deliver a total publication, crash before any other node has it, and return with it from its log.
The others do not wait for that. When they have agreed that the node does not count, they open the keys and go on. The
publications about these keys until then come before the total one at the others, and after it at the node that had it
(``docs/guarantees.md``).

This module reads traces, and shares no code with the protocols that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from antiphon.audit.incarnations import ENDS

Name = tuple[int, int, int]
"""Topic, source and number of a publication."""

Keys = frozenset[int | None]
"""What a publication is about; None is the key of those that name none."""


class Holders:
    """The total publications of a run, and the nodes that are up and have delivered them."""

    def __init__(self) -> None:
        self._holders: dict[Name, set[int]] = {}
        self._held_by: dict[int, set[Name]] = {}
        # Total publications that only nodes had that are down, until the next node delivers them.
        self._out_of_reach: dict[Name, Keys] = {}
        self._keys: dict[Name, Keys] = {}

    def delivered(self, node: int, name: Name, keys: Keys) -> None:
        """A node delivers a total publication."""
        self._keys[name] = keys
        self._holders.setdefault(name, set()).add(node)
        self._held_by.setdefault(node, set()).add(name)
        self._out_of_reach.pop(name, None)

    def ended(self, node: int) -> None:
        """A node crashes, or leaves."""
        for name in self._held_by.pop(node, set()):
            self._holders[name].discard(node)
            if not self._holders[name]:
                self._out_of_reach[name] = self._keys[name]

    def is_beyond(self, topic: int, keys: Keys) -> bool:
        """Whether a total publication about one of these keys is out of reach."""
        return any(name[0] == topic and keys & others for name, others in self._out_of_reach.items())


def keys_of(keys: Sequence[int] | None) -> Keys:
    """The keys in a row of a trace."""
    return frozenset(keys or (None,))


def publications_out_of_reach(rows: pa.Table) -> set[Name]:
    """The weaker publications that began while a total one about their keys was out of reach.

    The rows are the evidence of a run, in the order of events. A publication begins when its source delivers it.
    """
    events = rows["event"].cast(pa.string())
    if not pc.any(pc.is_in(events, pa.array(list(ENDS)))).as_py():
        return set()
    columns: list[Iterable[object]] = [rows[name].to_pylist() for name in ("node", "topic", "source", "sequence")]
    orders = rows["order"].to_pylist()
    keys = rows["keys"].to_pylist() if "keys" in rows.column_names else [None] * rows.num_rows
    holders, found = Holders(), set()
    for event, order, about, node, *name in zip(events.to_pylist(), orders, keys, *columns, strict=True):
        if event in ENDS:
            holders.ended(node)
        elif event == "deliver" and order == "total":
            holders.delivered(node, (name[0], name[1], name[2]), keys_of(about))
        elif event == "deliver" and node == name[1] and holders.is_beyond(name[0], keys_of(about)):
            found.add((name[0], name[1], name[2]))
    return found
