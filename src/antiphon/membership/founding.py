"""How a node of a cube or of gossip begins: it asks for a place, or founds a cluster if there is nobody to ask.

A node with a data directory remembers where the others were and which identifiers there were. If it is started without
nodes to ask, it looks for those of its earlier life first: a founder that founded its cluster anew would give
identifiers that others have. It has its identifier only when that is on its disk.
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
        remembered = msgspec.json.decode(self._host.facts.read(ADDRESSES) or b"[]", type=list[str])
        return [address for address in remembered if address != self._address]

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
            if timer == SEARCH:
                self._host.log.info("no node of an earlier life was found")
                self._joining.stop()
                self._found_when_safe()
            else:
                self._found(self.highest + 1)
        return True

    def remember(self, addresses: Sequence[str], highest: int) -> None:
        """Keep for the next life where others are, and which identifiers there were."""
        facts = self._host.facts
        kept = list(dict.fromkeys(addresses))[:ADDRESSES_AT_MOST]
        if kept:
            facts.put(ADDRESSES, msgspec.json.encode(kept))
        facts.put(HIGHEST, str(highest).encode())
        facts.commit_soon()
