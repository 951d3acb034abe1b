"""Sessions that move: a client goes on at another door of the cluster, and a door that closes gives its sessions away.

Doors tell each other on ``TOPIC`` which sessions they have. A door to which a client comes asks the door that has its
session, in four steps, so that nothing is missed in between and nothing comes twice:

1. The new door asks; the old one ends the connection, and says what the client has subscribed to.
2. The new door subscribes, and says when that is effective. The old one goes on collecting until then.
3. The old door hands over what waits and what is under way, and how far it has come with each publisher.
4. The new door goes on with that, and then with what the old one had not heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from antiphon.api.batch import Message
from antiphon.mqtt.envelope import MqttEnvelope
from antiphon.mqtt.session import MqttSession
from antiphon.mqtt.telling import Teller
from antiphon.node.acl import Holder
from antiphon.runtime.logging import logger
from antiphon.runtime.tasks import Tasks

TOPIC: Final = "$mqtt.sessions"
"""The topic on which doors say which sessions they have."""

MOVES_TOPIC: Final = "$mqtt.moves.{:d}"
"""The topic on which a door is asked for sessions, and gets them."""

STEP_SECONDS: Final = 3.0
"""A door that does not answer for so long counts as gone: the client begins anew."""

GIVE_AWAY_SECONDS: Final = 6.0
"""A door that closes has so long to give its sessions away."""

PART_BYTES: Final = 256 << 10
log = logger("mqtt.moving")

Key = tuple[str, str]
"""A session: the name of its client in the file of rights, and its client identifier."""


class SessionNotice(msgspec.Struct, frozen=True, array_like=True, tag="has"):
    """A door has sessions since these times; 0 says that it has one no more."""

    door: int
    sessions: tuple[tuple[str, str, int], ...] = ()


class SessionsRequest(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """A door has begun, and asks who has which sessions."""

    door: int


class DoorClosed(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    """A door takes no sessions any more; in the end it has none."""

    door: int
    is_final: bool = False


class MoveRequest(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """Step 1: a door asks for a session."""

    door: int
    client: str
    client_id: str


class OfferRefused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """A door does not take a session that it was offered."""

    client: str
    client_id: str


class MovedSubscription(msgspec.Struct, frozen=True, array_like=True):
    """A subscription of a session."""

    pattern: str
    qos: int
    is_not_local: bool
    keeps_retain: bool
    identifiers: tuple[int, ...]


class MoveOutline(msgspec.Struct, frozen=True, array_like=True, tag="outline"):
    """The answer: what the session has subscribed to; ``number`` is 0 if there is no such session."""

    client: str
    client_id: str
    number: int = 0
    expiry_seconds: int = 0
    subscriptions: tuple[MovedSubscription, ...] = ()


class MoveReady(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """Step 2: the subscriptions are effective at the new door."""

    door: int
    client: str
    client_id: str


class MovedMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message that waits for the client, with the filter by which it came."""

    pattern: str
    topic: str
    stamp_us: int
    payload: bytes
    envelope: MqttEnvelope
    user: tuple[tuple[str, str], ...] = ()
    is_retained: bool = False


class MovedState(msgspec.Struct, frozen=True, array_like=True, tag="state"):
    """Step 3: a part of what waits; the last one says what is under way, too."""

    client: str
    client_id: str
    messages: tuple[MovedMessage, ...]
    is_last: bool
    # Packets that are not acknowledged, in their order; a number alone where only the exchange has to end.
    outgoing: tuple[tuple[int, bytes | None], ...] = ()
    last_id: int = 0
    # Identifiers of messages with QoS 2 that the client has not released.
    incoming: tuple[int, ...] = ()
    # The last number that was heard of each publisher on each topic.
    heard: tuple[tuple[str, int, int], ...] = ()


class MoveOffer(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """A door that closes asks another one to take a session."""

    door: int
    client: str
    client_id: str
    token_hash: str


Told = SessionNotice | SessionsRequest | DoorClosed
Said = MoveRequest | MoveOutline | MoveReady | MovedState | MoveOffer | OfferRefused


class SessionKeeper(Protocol):
    """The door, as far as sessions move."""

    def session_of(self, key: Key) -> MqttSession | None:
        """A session that is here."""

    def forget(self, session: MqttSession) -> None:
        """A session is elsewhere now, or has lost against one that is."""

    def release(self, session: MqttSession) -> bool:
        """End the connection of a session that is asked for; whether the session is still there."""

    async def rebuild(self, key: Key, holder: Holder, outline: MoveOutline) -> MqttSession:
        """The session with its subscriptions, when these are effective."""

    def adopt(self, session: MqttSession) -> None:
        """A session that has come is one of this door's."""

    def peers(self) -> set[int] | None:
        """The other nodes that are there; None where a node does not know all of them."""

    async def offered(self, offer: MoveOffer) -> bool:
        """Take the session of a door that closes; whether it is here."""


@dataclass
class Arrival:
    """A session that is on its way here."""

    outline: asyncio.Future[MoveOutline]
    state: asyncio.Future[list[MovedState]]
    parts: list[MovedState] = field(default_factory=list)


class SessionMoves:
    """The sessions of all doors, and those that are on their way."""

    def __init__(
        self, door: int, keeper: SessionKeeper, clock_us: Callable[[], int], publish: Callable[[str, bytes], Any]
    ) -> None:
        self._door = door
        self._keeper = keeper
        self._clock_us = clock_us
        self._teller: Teller[Told | Said] = Teller(publish, "sessions", log)
        self._own: dict[Key, int] = {}
        self._elsewhere: dict[Key, tuple[int, int]] = {}
        self._doors: set[int] = set()
        self._arrivals: dict[Key, Arrival] = {}
        self._fetching: dict[Key, asyncio.Task[MqttSession | None]] = {}
        self._news: list[tuple[str, str, int]] = []
        self._tasks = Tasks()
        # Where this door closes: the sessions that it has offered to others.
        self._offered: set[Key] = set()
        self._is_closing = False
        self._loop = asyncio.get_running_loop()
        self._told: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)
        self._said: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said)

    # Who has what.

    def ask(self) -> None:
        """Ask the other doors what they have."""
        self._teller.say(TOPIC, SessionsRequest(self._door))

    def began(self, key: Key) -> None:
        """A session is here from now on."""
        known = self._elsewhere.pop(key, (0, 0))
        since_us = self._own[key] = max(self._clock_us(), known[1] + 1)
        self._note(key, since_us)

    def ended(self, key: Key) -> None:
        """A session is here no more."""
        if self._own.pop(key, None) is not None:
            self._note(key, 0)

    def is_elsewhere(self, key: Key) -> bool:
        """Whether another door has a session."""
        return key in self._elsewhere

    def told(self, message: Message) -> None:
        """A door has said what it has."""
        try:
            notice = self._told.decode(message.value)
        except msgspec.MsgspecError as error:
            log.warning("a notice about sessions cannot be read", reason=str(error))
            return
        if notice.door == self._door:
            return
        if isinstance(notice, DoorClosed):
            self._doors.discard(notice.door)
            if notice.is_final:
                self._elsewhere = {key: entry for key, entry in self._elsewhere.items() if entry[0] != notice.door}
            return
        self._doors.add(notice.door)
        if isinstance(notice, SessionsRequest):
            own = tuple((*key, since_us) for key, since_us in self._own.items())
            self._teller.say(TOPIC, SessionNotice(self._door, own))
            return
        for client, client_id, since_us in notice.sessions:
            self._on_notice(notice.door, (client, client_id), since_us)

    def _on_notice(self, door: int, key: Key, since_us: int) -> None:
        if since_us == 0:
            if self._elsewhere.get(key, (None, 0))[0] == door:
                del self._elsewhere[key]
            return
        own_us = self._own.get(key)
        if own_us is not None and (own_us, self._door) > (since_us, door):
            return
        if self._elsewhere.get(key, (0, 0))[1] <= since_us:
            self._elsewhere[key] = door, since_us
        if own_us is not None:
            # The client has begun anew at another door, which is the later one.
            session = self._keeper.session_of(key)
            if session is not None:
                self._keeper.forget(session)

    def _note(self, key: Key, since_us: int) -> None:
        if not self._news:
            self._loop.call_soon(self._tell_news)
        self._news.append((*key, since_us))

    def _tell_news(self) -> None:
        news, self._news = self._news, []
        self._teller.say(TOPIC, SessionNotice(self._door, tuple(news)))

    # At the new door.

    def fetch(self, key: Key, holder: Holder) -> Awaitable[MqttSession | None]:
        """The session, from the door that has it; None if that does not answer, or has it no more.

        A client that goes away meanwhile does not stop it.
        """
        task = self._fetching.get(key)
        if task is None:
            task = self._fetching[key] = self._loop.create_task(self._fetch(key, holder))
            task.add_done_callback(lambda _: self._fetching.pop(key, None))
        return asyncio.shield(task)

    async def _fetch(self, key: Key, holder: Holder) -> MqttSession | None:
        door, _ = self._elsewhere[key]
        peers = self._keeper.peers()
        if peers is not None and door not in peers:
            log.info("the session of a client was at a node that is gone", door=door, client_id=key[1])
            del self._elsewhere[key]
            return None
        arrival = self._arrivals[key] = Arrival(self._loop.create_future(), self._loop.create_future())
        session: MqttSession | None = None
        try:
            self._teller.say(MOVES_TOPIC.format(door), MoveRequest(self._door, *key))
            outline = await asyncio.wait_for(arrival.outline, STEP_SECONDS)
            if outline.number == 0:
                return None
            session = await self._keeper.rebuild(key, holder, outline)
            self._teller.say(MOVES_TOPIC.format(door), MoveReady(self._door, *key))
            restore(session, await asyncio.wait_for(arrival.state, STEP_SECONDS))
        except TimeoutError:
            log.warning("a session was not handed over in time", door=door, client_id=key[1])
            if session is not None:
                session.end()
            return None
        finally:
            self._elsewhere.pop(key, None)
            del self._arrivals[key]
        self._keeper.adopt(session)
        return session

    # At the old door.

    def said(self, message: Message) -> None:
        """Another door asks for a session, or hands one over."""
        try:
            said = self._said.decode(message.value)
        except msgspec.MsgspecError as error:
            log.warning("a session on its way cannot be read", reason=str(error))
            return
        key = said.client, said.client_id
        if isinstance(said, MoveRequest):
            self._on_request(said.door, key)
        elif isinstance(said, MoveReady):
            self._on_ready(said.door, key)
        elif isinstance(said, MoveOffer):
            self._elsewhere.setdefault(key, (said.door, 0))
            self._tasks.spawn(self._take(said))
        elif isinstance(said, OfferRefused):
            self._offered.discard(key)
        else:
            arrival = self._arrivals.get(key)
            if arrival is None:
                return
            if isinstance(said, MoveOutline):
                if not arrival.outline.done():
                    arrival.outline.set_result(said)
                return
            arrival.parts.append(said)
            if said.is_last and not arrival.state.done():
                arrival.state.set_result(arrival.parts)

    async def _take(self, offer: MoveOffer) -> None:
        """Take an offered session, or say that it is not taken."""
        if self._is_closing or not await self._keeper.offered(offer):
            self._teller.say(MOVES_TOPIC.format(offer.door), OfferRefused(offer.client, offer.client_id))

    def _on_request(self, door: int, key: Key) -> None:
        session = self._keeper.session_of(key)
        outline = MoveOutline(*key)
        if session is not None and self._keeper.release(session):
            subscriptions = tuple(
                MovedSubscription(
                    pattern,
                    each.filter.qos,
                    each.filter.is_not_local,
                    each.filter.keeps_retain,
                    each.identifiers,
                )
                for pattern, each in session.subscriptions.items()
            )
            outline = MoveOutline(*key, session.number, session.expiry_seconds, subscriptions)
        self._teller.say(MOVES_TOPIC.format(door), outline)

    def _on_ready(self, door: int, key: Key) -> None:
        session = self._keeper.session_of(key)
        if session is None or not self._keeper.release(session):
            return
        for part in parts_of(key, session):
            self._teller.say(MOVES_TOPIC.format(door), part)
        self._keeper.forget(session)

    async def give_away(self, sessions: list[MqttSession]) -> None:
        """Hand sessions over to the other doors, because this one closes."""
        self._is_closing = True
        peers = self._keeper.peers()
        self._teller.say(TOPIC, DoorClosed(self._door))
        doors = sorted(self._doors if peers is None else self._doors & peers)
        if not doors:
            return
        for place, session in enumerate(sessions):
            offer = MoveOffer(self._door, session.holder.name, session.client_id, session.holder.token_hash)
            if self._teller.say(MOVES_TOPIC.format(doors[place % len(doors)]), offer):
                self._offered.add((offer.client, offer.client_id))
        end = self._loop.time() + GIVE_AWAY_SECONDS
        while self._offered & self._own.keys() and self._loop.time() < end:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """The door is there no more."""
        self._teller.say(TOPIC, DoorClosed(self._door, is_final=True))
        for task in self._fetching.values():
            task.cancel()
        self._tasks.cancel()


def parts_of(key: Key, session: MqttSession) -> list[MovedState]:
    """All that another door needs to go on with a session, in parts."""
    parts: list[list[MovedMessage]] = [[]]
    size = 0
    for pattern, each in session.taken_out():
        message = MovedMessage(pattern, *each)
        if size > PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += len(message.payload) + 200
    found = [MovedState(*key, tuple(part), False) for part in parts]
    outgoing, last_id = session.outgoing.state()
    found.append(
        MovedState(
            *key,
            (),
            True,
            tuple(outgoing),
            last_id,
            tuple(session.incoming.unreleased()),
            tuple((topic, publisher, number) for (topic, publisher), number in session.heard.items()),
        )
    )
    return found


def restore(session: MqttSession, parts: list[MovedState]) -> None:
    """Go on with a session where another door has stopped."""
    last = parts[-1]
    session.outgoing.restore(list(last.outgoing), last.last_id)
    session.incoming.restore(last.incoming)
    heard = {(topic, publisher): number for topic, publisher, number in last.heard}
    session.put_in([(each.pattern, each) for part in parts for each in part.messages], heard)
