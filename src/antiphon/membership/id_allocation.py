"""Takes blocks of identifiers to give to newcomers, used when every node that held many of them has left.

A node that has no identifier left asks all others within reach whether a block is free. A node that knows of another
one in it refuses; the others note it as taken, whatever becomes of the asker. A question or its answer may be lost with
a connection, so those that have not answered are asked again as long as they are there.

If most nodes are out of reach, the others may take the next block as well. So a node that no other refuses skips a
number of blocks that it draws: two parts take the same one with a chance of one in ``SKIPPED_BELOW``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from antiphon.membership.address_book import AddressBook
from antiphon.membership.host import SECOND_US, Host, Timer
from antiphon.membership.messages import BlockRequest, BlockResponse

AGAIN_US: Final = SECOND_US
"""After how long those that have not answered are asked again."""

SKIPPED_BELOW: Final = 1024
"""So many blocks a node skips at most that cannot ask most of the others; about 64 such blocks can be taken."""


class Others(Protocol):
    """The other nodes, as a part of membership sees them that has something to ask them."""

    def identifiers(self) -> set[int]:
        """The nodes that are there."""

    def send_control(self, identifier: int, control: Any) -> None:
        """Send a message to one of them."""


class BlockClaims:
    """How one node takes blocks, and answers others that do.

    ``address_book`` is that of the node at the time; ``needed`` says how many others have to agree, besides that none
    refuses. ``timer`` is the name under which it waits for answers.
    """

    def __init__(
        self,
        host: Host,
        others: Others,
        address_book: Callable[[], AddressBook],
        needed: Callable[[], int],
        timer: Timer,
    ) -> None:
        self._host = host
        self._others = others
        self._address_book = address_book
        self._needed = needed
        self._timer = timer
        # The block that this node tries to take, under which number it asks, and who has not answered.
        self._block: int | None = None
        self._number = 0
        self._waiting: set[int] = set()
        self._answers: dict[int, bool] = {}
        # Whether the block is far from those that the nodes out of reach may take.
        self._is_far = False

    def claim(self) -> None:
        """Try to take a block, unless that goes on already."""
        if self._block is None:
            self._begin(0)

    def _begin(self, skipped: int) -> None:
        self._is_far = skipped > 0
        self._block = self._address_book().next_block(skipped)
        if self._block is None:
            self._host.log.warning("no identifiers are left for newcomers; found a new cluster")
            return
        self._number += 1
        self._answers = {}
        self._waiting = self._others.identifiers()
        self._ask()

    def _ask(self) -> None:
        assert self._block is not None, "a node asks for a block"
        if not self._waiting:
            self._conclude()
            return
        for identifier in sorted(self._waiting):
            self._others.send_control(identifier, BlockRequest(self._number, self._block))
        self._host.set_timer(self._timer, AGAIN_US)

    def ask_again(self) -> None:
        """Some have not answered for a while."""
        if self._block is not None:
            self._waiting &= self._others.identifiers()
            self._ask()

    def on_peer_lost(self) -> None:
        """Others may not be there any more: do not wait for them."""
        if self._block is not None and not self._waiting <= (there := self._others.identifiers()):
            self._waiting &= there
            if not self._waiting:
                self._conclude()

    def on_message(self, sender: int, message: BlockRequest | BlockResponse) -> None:
        """Another node asks or answers."""
        if isinstance(message, BlockRequest):
            self._others.send_control(
                sender, BlockResponse(message.number, self._address_book().is_free(message.block))
            )
        elif self._block is not None and message.number == self._number and sender in self._waiting:
            self._waiting.discard(sender)
            self._answers[sender] = message.is_free
            if not self._waiting:
                self._conclude()

    def _conclude(self) -> None:
        block, self._block = self._block, None
        self._host.cancel_timer(self._timer)
        if block is None or not all(self._answers.values()):
            return
        if self._is_far or len(self._answers) >= self._needed():
            self._address_book().take_block(block)
            self._host.log.info("reserved identifiers for newcomers", block=block)
        else:
            self._begin(1 + self._host.draw(SKIPPED_BELOW))
