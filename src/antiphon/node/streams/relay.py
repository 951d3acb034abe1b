"""The requests about streams of the programs in which nodes run: they travel over the links between nodes.

A client asks over connections of its own. A program with a node asks its node, in memory, and through it any node to
which that is connected, with the same frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from antiphon.api.lifecycle import Lifecycle
from antiphon.api.streams.leader_links import LeaderLinks
from antiphon.api.streams.stream_api import StreamCalls
from antiphon.kernel.errors import PeerError
from antiphon.membership.membership import Membership
from antiphon.node.acl import ANYBODY, Holder
from antiphon.sessions.client_messages import StreamRequest, StreamResponse
from antiphon.streams.requests import Response, decode_response
from antiphon.streams.service.stream_gateway import StreamAccess

RESPONSE_SECONDS: Final = 60.0
"""After so long an answer is not awaited any more: a link between nodes may lose it without a word."""


class Asker:
    """A program that asks the streams of this node: the one in which it runs, or that of another node."""

    def __init__(self, send: Callable[[int, bytes], None]) -> None:
        # Nodes of a cluster trust each other.
        self.holder: Holder = ANYBODY
        self.answer = send
        self.is_connected = True
        self.has_room = True

    def charge_command(self) -> None:
        """Nor are they paced."""

    def check_kept(self, quota: str, used: int, more: int = 1) -> None:
        """Programs with nodes have no quotas."""


class RelayedPeer:
    """A node, as this one asks it about streams; ``send`` hands it a request."""

    def __init__(self, address: str, check_open: Callable[[], None], send: Callable[[int, bytes], None]) -> None:
        self.address = address
        self._check_open = check_open
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._open: dict[int, asyncio.Future[Response]] = {}
        # Of requests with several answers: who gets those behind the first.
        self._handlers: dict[int, Callable[[Response], None]] = {}
        self._is_lost = False

    @property
    def is_up(self) -> bool:
        """Whether it can be reached, and this node is there."""
        try:
            self._check_open()
        except PeerError:
            return False
        return not self._is_lost

    def ask_streams(
        self, payload: bytes, on_more: Callable[[Response], None] | None = None
    ) -> asyncio.Future[Response]:
        """Ask about streams; further answers to the same request go to ``on_more``."""
        self._check_open()
        if self._is_lost:
            raise PeerError(f"the node at {self.address} is gone")
        self._numbers += 1
        number = self._numbers
        answer = self._open[number] = self._loop.create_future()
        timer = self._loop.call_later(RESPONSE_SECONDS, self._give_up, answer)
        answer.add_done_callback(partial(self._answered, number, timer))
        if on_more is not None:
            self._handlers[number] = on_more
        self._send(number, payload)
        return answer

    def _give_up(self, answer: asyncio.Future[Response]) -> None:
        if not answer.done():
            answer.set_exception(PeerError(f"the node at {self.address} did not answer"))

    def _answered(self, number: int, timer: asyncio.TimerHandle, answer: asyncio.Future[Response]) -> None:
        timer.cancel()
        del self._open[number]

    def on_response(self, number: int, payload: bytes) -> None:
        """The node has answered, or has more."""
        response = decode_response(payload)
        answer = self._open.get(number)
        if answer is not None and not answer.done():
            answer.set_result(response)
        elif number in self._handlers:
            self._handlers[number](response)

    def lost(self) -> None:
        """The node cannot be reached any more: nothing is answered."""
        self._is_lost = True
        self._handlers.clear()
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(PeerError(f"the node at {self.address} is gone"))
                # Whoever asked may have stopped waiting.
                answer.exception()

    async def abandon(self) -> None:
        """The link belongs to the node, and stays."""


class StreamRelay:
    """The way of one node's program to all streams, and of other nodes' programs to the streams here."""

    def __init__(
        self, address: str, access: StreamAccess, cluster: Membership, settle: Callable[[], None], lifecycle: Lifecycle
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._settle = settle
        self._check_open = lifecycle.check_open
        self._peers: dict[int, RelayedPeer] = {}
        self._askers: dict[int, Asker] = {}
        self._home = RelayedPeer(address, self._check_open, self._ask_here)
        self._program = Asker(self._home.on_response)
        self.calls = StreamCalls(LeaderLinks(self._home, self._connect))

    # What the program here asks.

    def _ask_here(self, number: int, payload: bytes) -> None:
        self._handle(self._program, number, payload)

    async def _connect(self, address: str) -> RelayedPeer:
        """The node at an address."""
        identifier = next((peer.identifier for peer in self._cluster.peers() if peer.address == address), None)
        if identifier is None:
            raise PeerError(f"no node at {address} can be reached")
        peer = self._peers.get(identifier)
        if peer is None:
            send = partial(self._ask_peer, identifier)
            peer = self._peers[identifier] = RelayedPeer(address, self._check_open, send)
        return peer

    def _ask_peer(self, identifier: int, number: int, payload: bytes) -> None:
        self._cluster.send_control(identifier, StreamRequest(number, payload))
        self._settle()

    # What programs at other nodes ask.

    def on_message(self, sender: int, message: StreamRequest | StreamResponse) -> None:
        """Another node asks or answers."""
        if isinstance(message, StreamRequest):
            asker = self._askers.get(sender)
            if asker is None:
                asker = self._askers[sender] = Asker(partial(self._answer_peer, sender))
            self._handle(asker, message.number, message.payload)
        elif sender in self._peers:
            self._peers[sender].on_response(message.number, message.payload)

    def _answer_peer(self, identifier: int, number: int, payload: bytes) -> None:
        self._cluster.send_control(identifier, StreamResponse(number, payload))

    def _handle(self, asker: Asker, number: int, payload: bytes) -> None:
        self._access.on_request(asker, number, payload, self._cluster.addresses())
        self._settle()

    def peer_lost(self, identifier: int) -> None:
        """Another node cannot be reached any more."""
        peer = self._peers.pop(identifier, None)
        if peer is not None:
            peer.lost()
        asker = self._askers.pop(identifier, None)
        if asker is not None:
            asker.is_connected = False
            self._access.client_ended(asker)
