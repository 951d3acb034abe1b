"""Shared subscriptions at one door: what it tells the other doors, and the way of a message to the member that gets it.

``protocol/sharing.py`` decides. Doors tell each other of their members on the topic ``TOPIC``, and say there every
second that they are there, so that a door that is gone is missed. A message for a member at another door goes to the
topic of that door.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.api.batch import Message
from antiphon.api.subscription import LiveSubscription
from antiphon.mqtt.envelope import MqttEnvelope, all_user_properties, envelope_of
from antiphon.mqtt.protocol.sharing import GroupMember, Series, ShareClaim, ShareGroup
from antiphon.mqtt.session import MqttSession, MqttSubscription
from antiphon.mqtt.telling import Teller
from antiphon.mqtt.topics import mqtt_name
from antiphon.runtime.logging import logger

TOPIC: Final = "$mqtt.shares"
"""The topic on which doors tell each other of their members."""

DOOR_TOPIC: Final = "$mqtt.door.{:d}"
"""The topic on which a door gets messages for its members."""

TELL_SECONDS: Final = 1.0
MARK_SECONDS: Final = 0.1
"""The owner of a group tells the others so often how far it is; if it fails, what it did not tell of comes twice."""

QUEUE_LIMIT: Final = 10_000
"""So many messages of a group may wait for one member."""

TAKEN_AT_ONCE: Final = 64
log = logger("mqtt.shares")


class SharedMessage(msgspec.Struct, frozen=True, array_like=True, tag="message"):
    """A message on its way to a member at another door."""

    group: str
    member: int
    topic: str
    stamp_us: int
    payload: bytes
    envelope: MqttEnvelope
    user: tuple[tuple[str, str], ...] = ()

    @property
    def is_retained(self) -> bool:
        """Whether it is a retained message: groups get none."""
        return False


class MembersNotice(msgspec.Struct, frozen=True, array_like=True, tag="members"):
    """The members that a door has in a group; ``since_us`` is 0 if the door has the group no more."""

    door: int
    group: str
    since_us: int
    connected: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


class MarksNotice(msgspec.Struct, frozen=True, array_like=True, tag="marks"):
    """How far the owner of a group has handed out the series of messages."""

    group: str
    marks: tuple[tuple[str, int, int], ...]


class DoorNotice(msgspec.Struct, frozen=True, array_like=True, tag="door"):
    """A door with groups is there."""

    door: int


class MembersRequest(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """A door has begun, and asks what groups there are."""

    door: int


ShareNotice = MembersNotice | MarksNotice | MembersRequest | DoorNotice


class HandedQueue:
    """The messages of a group that one member is to get: as good for a session as a subscription of the node."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.dropped = 0
        self.is_closed = False
        self.failure: BaseException | None = None
        self.when_arrived: Callable[[], None] | None = None
        self._messages: deque[Message | SharedMessage] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._messages

    def take_messages(self) -> list[Message | SharedMessage]:
        """The first of those that wait."""
        return [self._messages.popleft() for _ in range(min(TAKEN_AT_ONCE, len(self._messages)))]

    def push(self, message: Message | SharedMessage) -> None:
        """One more; the oldest is dropped if there are too many."""
        if len(self._messages) >= QUEUE_LIMIT:
            self._messages.popleft()
            self.dropped += 1
        self._messages.append(message)
        if self.when_arrived is not None:
            self.when_arrived()

    def end(self) -> None:
        """Nothing more is wanted."""
        self.is_closed = True


class LocalGroup:
    """A group at this door: what it decides, what feeds it, and its members here."""

    def __init__(self, door: int) -> None:
        self.state: ShareGroup[Message] = ShareGroup(door)
        self.lives: list[LiveSubscription] = []
        self.members: dict[int, tuple[MqttSession, HandedQueue]] = {}


class Shares:
    """All groups that one door knows."""

    def __init__(
        self,
        door: int,
        clock_us: Callable[[], int],
        silence_seconds: float,
        publish: Callable[[str, bytes], Any],
    ) -> None:
        self._door = door
        self._clock_us = clock_us
        self._silence_seconds = silence_seconds
        self._teller: Teller[ShareNotice | SharedMessage] = Teller(publish, "shared subscriptions", log)
        self._groups: dict[str, LocalGroup] = {}
        self._heard: dict[int, float] = {}
        self._loop = asyncio.get_running_loop()
        self._ticking: asyncio.TimerHandle | None = None
        self._marking: asyncio.TimerHandle | None = None
        self._notices: msgspec.msgpack.Decoder[ShareNotice] = msgspec.msgpack.Decoder(ShareNotice)
        self._messages = msgspec.msgpack.Decoder(SharedMessage)

    @property
    def count(self) -> int:
        """How many groups have members here."""
        return sum(bool(group.members) for group in self._groups.values())

    def ask(self) -> None:
        """Ask the other doors what groups there are."""
        self._teller.say(TOPIC, MembersRequest(self._door))

    def close(self) -> None:
        """Leave all groups, and say so."""
        for name, group in self._groups.items():
            if group.state.own is not None:
                self._teller.say(TOPIC, MembersNotice(self._door, name, 0))
            for live in group.lives:
                live.end()
        self._groups.clear()
        for timer in (self._ticking, self._marking):
            if timer is not None:
                timer.cancel()

    # Members here.

    def join(
        self, session: MqttSession, subscription: MqttSubscription, pattern: str, begin: Callable[[], list[Any]]
    ) -> list[LiveSubscription]:
        """A session becomes a member; ``begin`` subscribes for the group, and the answer is to be waited for."""
        name = subscription.filter.pattern
        group = self._group(name)
        queue = HandedQueue(pattern)
        group.members[session.number] = session, queue
        session.attach(subscription, queue)
        if not group.lives:
            group.lives = begin()
            for live in group.lives:
                live.when_arrived = lambda: self._on_arrival(name, group)
        self.tell(name)
        return group.lives

    def leave(self, session: MqttSession, name: str, unsent: list[Any]) -> None:
        """A session is no member any more; what was not sent to it goes to the others."""
        group = self._groups.get(name)
        if group is None or session.number not in group.members:
            return
        _, queue = group.members.pop(session.number)
        self.tell(name)
        while waiting := queue.take_messages():
            unsent.extend(waiting)
        self._heed(name, group, unsent)

    def connection_changed(self, session: MqttSession) -> None:
        """A session has a connection now, or has none any more."""
        for name in session.subscriptions:
            group = self._groups.get(name)
            if group is not None and session.number in group.members:
                self.tell(name)

    def tell(self, name: str) -> None:
        """Tell all doors, this one first, of the members here."""
        group = self._groups[name]
        own = group.state.own
        connected = tuple(sorted(n for n, (session, _) in group.members.items() if session.connection is not None))
        waiting = tuple(sorted(group.members.keys() - set(connected)))
        since_us = self._clock_us() if own is None else own.since_us
        self._heed(name, group, group.state.claim(self._door, ShareClaim(since_us, connected, waiting)))
        if not group.members and (not group.state.is_owned_here or not group.state.has_members):
            # The owner stays for the members elsewhere.
            self._heed(name, group, group.state.give_up(self._door))
            self._end_lives(group)
            since_us = 0
        self._teller.say(TOPIC, MembersNotice(self._door, name, since_us, connected, waiting))
        self._forget_if_unused(name, group)
        self._keep_ticking()

    def _group(self, name: str) -> LocalGroup:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = LocalGroup(self._door)
        return group

    def _end_lives(self, group: LocalGroup) -> None:
        for live in group.lives:
            live.when_arrived = None
            live.end()
        group.lives = []

    def _forget_if_unused(self, name: str, group: LocalGroup) -> None:
        if not group.state.doors and not group.members and self._groups.get(name) is group:
            del self._groups[name]

    # Messages.

    def _on_arrival(self, name: str, group: LocalGroup) -> None:
        for live in group.lives:
            while not live.is_empty:
                for message in live.take_messages() or ():
                    if group.state.take(Series(message.topic, message.publisher), message.sequence, message):
                        self._hand(name, group, message)
        if group.state.is_owned_here and self._marking is None and len(group.state.doors) > 1:
            self._marking = self._loop.call_later(MARK_SECONDS, self._mark)

    def _heed(self, name: str, group: LocalGroup, held: list[Message]) -> None:
        for message in held:
            self._hand(name, group, message)

    def _hand(self, name: str, group: LocalGroup, message: Message | SharedMessage) -> None:
        """Give a message to the member whose turn it is."""
        member = group.state.next_member()
        if member is not None:
            self._give(name, group, member, message)

    def _give(self, name: str, group: LocalGroup, member: GroupMember, message: Message | SharedMessage) -> None:
        if member.door == self._door:
            group.members[member.number][1].push(message)
            return
        if isinstance(message, SharedMessage):
            shared = msgspec.structs.replace(message, member=member.number)
        else:
            envelope = envelope_of(message.headers)
            shared = SharedMessage(
                name,
                member.number,
                mqtt_name(message.topic),
                message.timestamp_us,
                message.value,
                envelope,
                all_user_properties(message, envelope),
            )
        self._teller.say(DOOR_TOPIC.format(member.door), shared)

    def message_received(self, message: Message) -> None:
        """Another door gives a message to a member here; if that is gone, to the next one."""
        try:
            shared = self._messages.decode(message.value)
        except msgspec.MsgspecError as error:
            log.warning("a shared message cannot be read", publisher=message.publisher, reason=str(error))
            return
        group = self._groups.get(shared.group)
        if group is None:
            return
        found = group.members.get(shared.member)
        if found is not None:
            found[1].push(shared)
        elif group.state.has_members:
            self._hand(shared.group, group, shared)

    # What doors say.

    def received(self, message: Message) -> None:
        """A door has said something about groups."""
        try:
            notice = self._notices.decode(message.value)
        except msgspec.MsgspecError as error:
            log.warning("a notice about shared subscriptions cannot be read", reason=str(error))
            return
        if isinstance(notice, MarksNotice):
            found = self._groups.get(notice.group)
            if found is not None:
                found.state.handed_out(notice.marks)
        elif notice.door == self._door:
            return
        elif isinstance(notice, MembersRequest):
            self._tell_all()
        elif isinstance(notice, MembersNotice):
            self._on_members(notice)
        else:
            if notice.door not in self._heard:
                # It counted as gone, or was there before this door.
                self.ask()
            self._heard[notice.door] = self._loop.time()

    def _on_members(self, notice: MembersNotice) -> None:
        self._heard[notice.door] = self._loop.time()
        group = self._group(notice.group)
        if notice.since_us:
            claim = ShareClaim(notice.since_us, notice.connected, notice.waiting)
            self._heed(notice.group, group, group.state.claim(notice.door, claim))
        else:
            self._heed(notice.group, group, group.state.give_up(notice.door))
        if group.state.own is not None and not group.members:
            # This door stayed for members elsewhere: whether it still has to, it finds out now.
            self._review(notice.group, group)
        self._forget_if_unused(notice.group, group)
        self._keep_ticking()

    def _review(self, name: str, group: LocalGroup) -> None:
        if not group.state.has_members or not group.state.is_owned_here:
            self.tell(name)

    def _tell_all(self) -> None:
        for name, group in tuple(self._groups.items()):
            if group.state.own is not None:
                self.tell(name)

    def _tick(self) -> None:
        """Say that this door is there, and miss those that say nothing."""
        self._ticking = None
        if any(group.state.own is not None for group in self._groups.values()):
            self._teller.say(TOPIC, DoorNotice(self._door))
        now = self._loop.time()
        for door in [door for door, at in self._heard.items() if now - at > self._silence_seconds]:
            del self._heard[door]
            log.info("a door is gone", door=door)
            for name, group in tuple(self._groups.items()):
                self._heed(name, group, group.state.give_up(door))
                self._forget_if_unused(name, group)
        self._keep_ticking()

    def _keep_ticking(self) -> None:
        if self._ticking is None and self._groups:
            self._ticking = self._loop.call_later(TELL_SECONDS, self._tick)

    def _mark(self) -> None:
        self._marking = None
        for name, group in self._groups.items():
            marks = group.state.untold()
            if marks:
                self._teller.say(TOPIC, MarksNotice(name, tuple(marks)))
