"""The brokers of a tree as one of them sees them: known from the start, and lost when a connection breaks.

Each broker opens a connection to every other and uses it in one direction. A broker may be used when it has heard from
all others. A connection that breaks, in either direction, means that the other end has failed: what was on it may be
lost, and the process takes failures at their word. So who is lost stays lost. If it lives after all it is told so, is
not heard any more, and stops; a new life at the same address is told the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from antiphon.fabrics.admission_messages import Peer
from antiphon.kernel.errors import PeerError, ProtocolError
from antiphon.live.controls import Hello
from antiphon.live.errors import JoinError
from antiphon.live.links import OutgoingLink
from antiphon.live.logs import logger
from antiphon.live.membership import IncomingConnection, Membership
from antiphon.live.tree_table import TreeTable

if TYPE_CHECKING:
    from antiphon.live.node import Node

LOOK_SECONDS: Final = 0.005
"""How often a broker that leaves looks whether everything has been written."""

LAST_WORDS_SECONDS: Final = 1.0
"""How long a broker is still listened to when nothing can be sent to it any more."""

COUNTED_OUT: Final = (
    "this broker counts as failed here, because a connection with it has ended; it cannot return to a tree that runs: "
    "start the tree again with all its brokers"
)

log = logger("brokers")


class Brokers(Membership):
    """All brokers of a tree."""

    survives_crashes = True

    def __init__(self, node: Node, table: TreeTable) -> None:
        super().__init__(node, node.instance, node.address)
        self._place = table.place_of(node.address)
        self._addresses = table.brokers
        self._lives: dict[int, str] = {}
        self._instances: dict[str, int] = {}
        self._watched: set[int] = set()
        self._lost: set[int] = set()
        self._is_in: asyncio.Future[None] = node.loop.create_future()
        self._refusals: dict[str, str] = {}
        self._silent: list[OutgoingLink] = []

    # What the node does.

    async def join(self, contacts: Sequence[str]) -> None:
        """Begin, and wait until all others have been heard from."""
        settings = self._node.settings
        others = [place for place in range(len(self._addresses)) if place != self._place]
        for place in others:
            self.links[place] = OutgoingLink(
                self._addresses[place],
                "",
                self.hello(),
                self._link_lost,
                self._link_refused,
                settings.join_seconds,
                settings.lost_seconds,
            )
        # Others may be further and speak to the process before this broker has heard from all.
        self._node.placed(self._place, others)
        for link in self.links.values():
            link.open()
        self._look_who_is_there()
        try:
            async with asyncio.timeout(settings.join_seconds):
                await self._is_in
        except TimeoutError as error:
            missing = [self._addresses[place] for place in others if self._is_missing(place)]
            said = "".join(f"; {address} said: {reason}" for address, reason in self._refusals.items())
            raise JoinError(
                f"the brokers at {', '.join(missing)} are not there after {settings.join_seconds:g} seconds; "
                f"start all brokers of the tree{said}"
            ) from error

    async def leave(self) -> None:
        """Wait until everything that was said has been written; the others notice the end of the connections."""
        while any(link.unwritten_bytes() for link in self.links.values()):
            await asyncio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        self._is_in.cancel()
        for link in (*self.links.values(), *self._silent):
            link.close()
        super().close()

    def peers(self) -> list[Peer]:
        return [Peer(self._lives.get(place, ""), self._addresses[place], place) for place in sorted(self.links)]

    def highest_identifier(self) -> int:
        return len(self._addresses) - 1

    def identifier_of(self, instance: str) -> int | None:
        return self._instances.get(instance)

    # What connections say.

    def greeted(self, connection: IncomingConnection, hello: Hello) -> None:
        if hello.address not in self._addresses or hello.address == self._address:
            raise ProtocolError(f"the broker at {hello.address} is not of this tree; give all brokers the same file")
        place = self._addresses.index(hello.address)
        life = self._lives.setdefault(place, hello.instance)
        if life != hello.instance:
            # Whoever lives there now, the one who is known does not.
            self._lose(place)
        if place in self._lost:
            connection.expel(COUNTED_OUT)
            return
        self._instances[hello.instance] = place
        self._look_who_is_there()

    def connection_ended(self, connection: IncomingConnection) -> None:
        super().connection_ended(connection)
        place = self._instances.get(connection.instance)
        if place is not None:
            self._lose(place)

    def _link_lost(self, link: OutgoingLink) -> None:
        place = self._addresses.index(link.address)
        instance = self._lives.get(place)
        if any(connection.instance == instance for connection in self._incoming):
            # What the other end had sent before it went is still to be read; its own connection ends behind that.
            self._node.loop.call_later(LAST_WORDS_SECONDS, self._lose, place)
        else:
            self._lose(place)

    def _link_refused(self, link: OutgoingLink, reason: str, is_final: bool) -> None:
        if is_final and not self._is_closed:
            error = PeerError(f"the broker at {link.address} has excluded this one: {reason}")
            if self._is_in.done():
                self._node.fail(error)
            else:
                self._is_in.set_exception(JoinError(str(error)))
        self._refusals[link.address] = reason

    # Who is there.

    def _is_missing(self, place: int) -> bool:
        return place not in self._lives and place not in self._lost

    def _look_who_is_there(self) -> None:
        others = range(len(self._addresses))
        if not self._is_in.done() and not any(self._is_missing(place) for place in others if place != self._place):
            self._is_in.set_result(None)

    def _lose(self, place: int) -> None:
        """A broker has failed, for this one and for good."""
        if place in self._lost or self._is_closed:
            return
        log.warning("lost", node=place, address=self._addresses[place])
        self._lost.add(place)
        self.lost_nodes.append(place)
        instance = self._lives.get(place)
        if instance is not None:
            self._instances.pop(instance, None)
            for connection in tuple(self._incoming):
                if connection.instance == instance:
                    connection.expel(COUNTED_OUT)
        link = self.links.pop(place, None)
        if link is not None:
            # Nothing more is said over it, but the other end may have to say that it counts this one as failed.
            self._silent.append(link)
        self._node.peer_lost(place)
        if place in self._watched:
            self._node.link_lost(place)
        self._look_who_is_there()

    def watch(self, identifier: int) -> None:
        self._watched.add(identifier)
        if identifier in self._lost:
            # Not at once: the process is in the middle of a step.
            self._node.loop.call_soon(self._tell_again, identifier)

    def unwatch(self, identifier: int) -> None:
        self._watched.discard(identifier)

    def _tell_again(self, identifier: int) -> None:
        if identifier in self._watched and not self._is_closed:
            self._node.link_lost(identifier)
