"""How a node of a cube or of gossip begins: it asks for a place, or founds a cluster if there is nobody to ask.

A node with a data directory remembers where the others were and which identifiers there were. If it is started without
nodes to ask, it looks for those of its earlier life first: a founder that founded its cluster anew would give
identifiers that others have. While one of them answers that it has no place to give yet, the node goes on asking. It
has its identifier only when that is on its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.membership.host import HIGHEST, SECOND_US, Host, Timer
from antiphon.membership.joining import Joining

SEARCH_US: Final = 2 * SECOND_US
"""How long a node that is to found a cluster looks for those of its earlier life."""

ADDRESSES_AT_MOST: Final = 64
"""How many of the others are remembered."""

ADDRESSES: Final = "other nodes"
SEARCH: Final = Timer("search")
FOUND: Final = Timer("found")


class Founding:
    """The beginning of one node; ``found`` is called with the identifier of a node that founds a cluster."""

    def __init__(self, host: Host, joining: Joining, address: str, found: Callable[[int], None]) -> None:
        self._host = host
        self._joining = joining
        self._address = address
        self._found = found
        self._is_over = False
        # Where other nodes were, the latest first. Those that are gone now may be back when this node looks for them.
        self._remembered = msgspec.json.decode(host.facts.read(ADDRESSES) or b"[]", type=list[str])
        self.highest: Final = int(host.facts.read(HIGHEST) or b"-1")

    def start(self, join: Sequence[str]) -> list[str]:
        """Begin; the answer is which nodes are asked for a place."""
        contacts = list(join) or self._earlier()
        if contacts:
            self._joining.ask(contacts)
            if not join:
                self._host.set_timer(SEARCH, SEARCH_US)
        else:
            self._found_when_safe()
        return contacts

    def _earlier(self) -> list[str]:
        return [address for address in self._remembered if address != self._address]

    def _found_when_safe(self) -> None:
        self._host.facts.put(HIGHEST, str(self.highest + 1).encode())
        self._host.when_safe(FOUND)

    def placed(self) -> None:
        """This node has its place."""
        self._is_over = True
        self._host.cancel_timer(SEARCH)

    def expired(self, timer: Timer) -> bool:
        """A timer has run out; whether it is one of founding."""
        if timer not in (SEARCH, FOUND):
            return False
        if not self._is_over:
            if timer == SEARCH and self._joining.has_met_cluster():
                self._host.log.info("the cluster of an earlier incarnation answered, but has no place to give yet")
                self._host.set_timer(SEARCH, SEARCH_US)
            elif timer == SEARCH:
                self._host.log.info("found no node of an earlier incarnation")
                self._joining.stop()
                self._found_when_safe()
            else:
                self._found(self.highest + 1)
        return True

    def remember(self, addresses: Sequence[str], highest: int) -> None:
        """Keep for the next life where others are, and which identifiers there were."""
        facts = self._host.facts
        self._remembered = list(dict.fromkeys([*addresses, *self._remembered]))[:ADDRESSES_AT_MOST]
        for name, value in ((ADDRESSES, msgspec.json.encode(self._remembered)), (HIGHEST, str(highest).encode())):
            if facts.read(name) != value:
                facts.put(name, value)
                facts.commit_soon()
