"""The loop of a node: its process, and all that happens between something entering and everything having settled.

Everything happens on one event loop. Each input (bytes from a link, a batch from an outbox, a timer) is handed to
the process; the process calls back (:mod:`antiphon.node.environment`); then the node *settles*: it writes what queued
on links, shows to subscribers what was delivered, and fills the room that has opened with waiting batches. Applications
are called while the node settles and never from inside the process, so what they publish cannot come between two
deliveries of one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from antiphon.api.batch import Batch
from antiphon.api.batch_codec import decode_checked, encode_columns
from antiphon.api.columns import NO_AUTHOR, Columns
from antiphon.api.lifecycle import Lifecycle
from antiphon.api.outbox import BlockedOutboxes
from antiphon.api.segment import Segment
from antiphon.api.topic_state import LiveTopic, LiveTopicTable
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import AntiphonError, ProtocolError
from antiphon.kernel.message import ORDER_NAMES, ProtocolMessage, Publication
from antiphon.kernel.process import Process
from antiphon.membership.membership import Membership
from antiphon.node.open_receipts import OpenReceipts
from antiphon.node.settings import Settings
from antiphon.node.write_scheduler import CREDIT_FRAMES, HeldCredit, WriteScheduler
from antiphon.runtime.clocks import monotonic_us, wall_clock_us
from antiphon.runtime.logging import logger
from antiphon.sessions.client_messages import CLIENT_CONTROLS
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.replay_buffer import TotalOrderScope
from antiphon.sessions.writers import Writers
from antiphon.storage.checkpoint import Checkpoints
from antiphon.storage.disk import Disk
from antiphon.storage.group_commit import GroupCommit
from antiphon.storage.log import DurableLog
from antiphon.storage.process_log import ProcessLog
from antiphon.transport.codec import Codec
from antiphon.transport.framing import FrameWriter
from antiphon.transport.links import OutgoingLink
from antiphon.transport.peer_messages import PEER_CONTROLS, CreditRequest
from antiphon.transport.schema import FABRIC_KINDS, SINCE, may_send

if TYPE_CHECKING:
    # Columns and their libraries take time and memory that a node without a trace has no use for.
    from antiphon.node.tracing import LiveTrace

log = logger("loop")

ORDER_NUMBERS: Final = {name: number for number, name in enumerate(ORDER_NAMES)}
UNHANDLED_LOGGED: Final = 20
"""So many failed steps are logged one by one; after that only some are, at growing distances."""

HURRY_SECONDS: Final = 0.05
"""How long acknowledgements are written at once after a publisher has said that it waits for them."""


class NodeLoop:
    """Drives the process of one node. ``fail`` stops the node for a reason that no later step can make good."""

    # Set when the node knows where it listens.
    cluster: Membership
    sessions: NodeEnd[Batch]

    def __init__(self, settings: Settings, lifecycle: Lifecycle, fail: Callable[[BaseException], None]) -> None:
        self.fail = fail
        # Steps that have failed: peers have lied, or this program has a bug.
        self.unhandled_errors = 0
        self.identifier = -1
        self.codec = Codec((*PEER_CONTROLS, *CLIENT_CONTROLS), FABRIC_KINDS[settings.fabric], self._check)
        # What this node takes for the time that all share.
        self.clock_us: Callable[[], int] = wall_clock_us
        self._window = settings.window
        self.window_bytes = settings.window_bytes
        self._pending_bytes = settings.pending_bytes
        self._loop = asyncio.get_running_loop()
        fabric = FABRICS[settings.fabric]
        self.traits = fabric.implementation().traits(settings.table)
        self.topics = LiveTopicTable(TotalOrderScope(fabric.may_pass_over, self.traits.is_strict))
        self._by_number = self.topics.by_number
        self.writers = Writers(logger("writers"), wall_clock_us)
        self.process: Process | None = None
        self.trace: LiveTrace | None = None
        # The disk of the node, whose parts are looked at for every message.
        self.store: DurableLog | None = None
        self.commit: GroupCommit | None = None
        self._disk_first: GroupCommit | None = None
        # Where a node goes on after a restart.
        self.checkpoints = Checkpoints(self.codec) if fabric.keeps_checkpoints else None
        self.log = ProcessLog(self.codec, self._by_number, self.checkpoints, recalls=fabric.serves_from_log)
        # Batches, and None where some are missing.
        self._to_show: list[tuple[LiveTopic, Batch | None]] = []
        # Batches for those that take them before they are on disk.
        self._to_take: list[tuple[LiveTopic, Batch]] = []
        self._writes = WriteScheduler(settings.gather_seconds, lifecycle)
        self.blocked = BlockedOutboxes()
        self._is_filling_later = False
        self._waited_for_disk = False
        self.receipts = OpenReceipts()
        self._held_credit = HeldCredit()
        # The batch that was made or checked last, with its content: its delivery mostly follows at once.
        self._decoded: tuple[bytes, Columns] | None = None
        # The batch that is being published, until it is delivered here.
        self._published: bytes = b""
        self._is_settling = False
        # Whether something happened on a topic for which a client's session waits.
        self._has_watched_news = False
        # Called whenever the node has settled, while it joins; otherwise nothing that costs time.
        self.when_settled: Callable[[], object] = bool

    def open(self, disk: Disk) -> None:
        """The node has a log."""
        assert disk.store is not None and disk.commit is not None, "only a disk with a log is opened"
        self.store, self.commit, self._disk_first = disk.store, disk.commit, disk.first
        self.receipts.disk_first = disk.first
        self.topics.logged_end = disk.store.latest
        self.log.open(disk.store, disk.commit, disk.journal is not None)
        self.writers.load(disk.store)

    # Topics and publications.

    def room(self, topic: LiveTopic) -> int:
        """How many more batches the process takes on a topic now."""
        process = self.process
        # A subscriber here that is behind, or the disk, slows the publishers elsewhere by credit that is held back, and
        # here by this.
        if process is None or topic.is_behind or not topic.may_publish():
            return 0
        if self.store is not None and self.is_disk_behind:
            return 0
        room = int(process.room(topic.number))
        if room == 1:
            # What leaves now fills the window: the next batch waits for acknowledgements.
            topic.hurried_until = self._loop.time() + HURRY_SECONDS
        return 0 if topic.acknowledged_but(max(0, self._window - room)) >= self.window_bytes else room

    @property
    def is_disk_behind(self) -> bool:
        """Whether as much waits for the disk as may wait."""
        store = self.store
        return store is not None and store.pending_bytes >= self._pending_bytes

    def publish_segment(self, topic: LiveTopic, segment: Segment) -> int:
        """Hand a batch to the process, whether there is room or not; gives its number."""
        payload = encode_columns(segment.columns, segment.author)
        process = self.process
        assert process is not None, "a node that is in the cluster has a process"
        order = ORDER_NUMBERS[segment.order]
        if self.trace is not None:
            self.trace.published(self.identifier, topic, segment.columns, order)
        # This node delivers it too, mostly at once, and has its columns already.
        self._decoded = (payload, segment.columns)
        self._published = payload
        if segment.about:
            number = process.publish_about(list(segment.about), payload, topic.number, order)
        else:
            number = process.publish(payload, topic.number, order)
        is_delivered = self._published is not payload or self.receipts.was_accepted(topic.number, number)
        self._published = b""
        topic.sent(len(payload))
        if self.trace is not None:
            self.trace.numbered(self.identifier, topic, segment.columns, int(number))
        if segment.author != NO_AUTHOR and not segment.author.writer:
            self.sessions.safety.handed_in(topic, int(number), segment.author.client, segment.author.number)
        if segment.receipt is not None:
            self.receipts.add(topic, int(number), segment.receipt, is_delivered)
        self.settle()
        return int(number)

    def send_held_credit(self, topic: LiveTopic) -> None:
        """Nobody here is behind on a topic any more: let those go on who publish there."""
        self._send_held(self._held_credit.take(topic))

    def release_credit(self, topic: LiveTopic, sink: Any) -> None:
        """A sink that had fallen behind has room again."""
        if topic.caught_up(sink):
            self.send_held_credit(topic)
            self.room_may_be_on(topic)
            self.settle()

    def committed(self) -> None:
        """Something is on disk: whoever waited for room there goes on."""
        if not self.is_disk_behind:
            if self._held_credit.for_disk:
                self._send_held(self._held_credit.take_for_disk())
            if self._waited_for_disk:
                self._waited_for_disk = False
                self.blocked.name_all()
        self.settle()

    def room_may_be_on(self, topic: LiveTopic) -> None:
        """Something happened on a topic: its outbox, if it is blocked, is tried when the node settles."""
        if topic.outbox is not None and topic.outbox.is_blocked:
            self.blocked.name(topic.outbox)

    def settle_everywhere(self) -> None:
        """Bring the outside up to date after an event that may have opened room on any topic."""
        self.blocked.name_all()
        self.settle()

    def _send_held(self, held: list[tuple[int, ProtocolMessage]]) -> None:
        for destination, message in held:
            self._send(destination, message, True)

    # What enters.

    def _check(self, payload: bytes) -> None:
        """Refuse a payload from a peer that cannot be decoded, and keep the content of one that can."""
        columns = decode_checked(payload)
        self._decoded = None if columns is None else (payload, columns)

    def received(self, sender: int, message: ProtocolMessage) -> None:
        """A message of a peer's process."""
        process = self.process
        if process is None:
            raise ProtocolError(f"node {sender} sent a {type(message).__name__} to a node that has no place yet")
        process.receive(sender, message)
        if self.blocked.ring:
            topic = self._by_number.get(message.topic)
            if topic is None:
                self.blocked.name_all()
            else:
                self.room_may_be_on(topic)

    def expired(self, name: int) -> None:
        """A timer of the process has run out."""
        assert self.process is not None, "only a process sets timers"
        try:
            self.process.expire(name)
        finally:
            self.settle_everywhere()

    def unhandled(self, error: Exception) -> None:
        """A step has failed, perhaps because of a message that no correct peer sends: count it, and go on.

        A node that ended could be ended by any peer that lies, and the next one after it.
        """
        self.unhandled_errors += 1
        if self.unhandled_errors <= UNHANDLED_LOGGED or self.unhandled_errors.bit_count() == 1:
            log.error("a step failed; the node continues", count=self.unhandled_errors, cause=error)

    # What the process does.

    def transmit(self, destination: int, message: ProtocolMessage) -> None:
        """Send a message of the process, unless it would let a publisher go on whom this node cannot follow."""
        is_credit = message.is_credit()
        if is_credit:
            topic = self._by_number.get(message.topic)
            if topic is not None and topic.is_behind:
                self._held_credit.hold(topic, destination, message)
                return
            if self._disk_first is not None:
                self._disk_first.then(partial(self._send, destination, message, True))
                return
            if self.store is not None and self.is_disk_behind:
                self._held_credit.for_disk.append((destination, message))
                return
        self._send(destination, message, is_credit)

    def _send(self, destination: int, message: ProtocolMessage, is_credit: bool) -> None:
        link = self.cluster.link_for(destination, message)
        if not isinstance(link, OutgoingLink):
            # There is nobody any more.
            return
        if SINCE and not may_send(message, self.cluster.version_of(destination)):
            return
        topic = self._by_number.get(message.topic)
        is_hurried = topic is not None and topic.hurried_until > 0 and topic.hurried_until > self._loop.time()
        if is_hurried and not message.is_control():
            link.send(self.codec.encode_control(CreditRequest(message.topic)))
        link.send(self.codec.encode(message))
        # Nobody waits for credit as an application waits for its messages: some is collected before it is written.
        is_urgent = is_hurried or not is_credit or link.queued_frames >= CREDIT_FRAMES
        (self._writes.dirty if is_urgent else self._writes.with_credit).add(link)

    def credit_wanted(self, number: int) -> None:
        """A publisher on this topic waits for acknowledgements; whoever gets its messages from here is told too."""
        topic = self._by_number.get(number)
        if topic is not None:
            topic.hurried_until = self._loop.time() + HURRY_SECONDS

    def write(self, writer: FrameWriter, frame: bytes) -> None:
        """Send a frame when the node settles."""
        writer.send(frame)
        self._writes.dirty.add(writer)

    def delivered(self, publication: Publication) -> None:
        """The process delivers: the messages get their offsets; subscribers see them when the node settles."""
        topic = self._by_number[publication.topic]
        payload = publication.payload
        if payload is self._published:
            self._published = b""
        batch = self._batch_of(topic, publication)
        fact = None
        if batch.is_written:
            fact = self.writers.take(topic.name, batch.origin)
            is_new = fact is not None
            if is_new:
                topic.seen.add(batch.author, batch.number, only_grows=True)
        else:
            strict, logged = self.traits.is_strict, topic.logged_before
            is_new = topic.seen.take_at_node(batch.author, batch.number, batch.order, strict, logged)
        self._has_watched_news = self._has_watched_news or topic.is_watched
        if batch.count == 0 or (batch.client != 0 and not is_new):
            self._pass_over(topic, batch, publication)
            return
        if self.store is not None:
            assert self.process is not None, "only a process delivers"
            try:
                self.log.append(self.process, topic, batch.count, publication, fact)
            except AntiphonError as error:
                self.fail(error)
                return
        topic.end_offset = batch.end_offset
        topic.is_missing = False
        topic.delivered_messages += batch.count
        topic.delivered_bytes += len(payload)
        self._accept_own(publication)
        if self.trace is not None:
            self.trace.delivered(self.identifier, topic, batch, publication)
        if self._disk_first is not None:
            self._show_when_on_disk(topic, batch)
            return
        if self.commit is not None:
            self.commit.soon()
        self._to_show.append((topic, batch))

    def _show_when_on_disk(self, topic: LiveTopic, batch: Batch) -> None:
        assert self._disk_first is not None, "it is waited for"
        if topic.takers:
            self._to_take.append((topic, batch))
        self._disk_first.then(partial(topic.show, batch))

    def _batch_of(self, topic: LiveTopic, publication: Publication) -> Batch:
        """The delivered batch, at the next offset; with its content if that is known and read here."""
        payload, order = publication.payload, ORDER_NAMES[publication.order]
        decoded, self._decoded = self._decoded, None
        columns = None
        if decoded is not None and decoded[0] is payload and (topic.reading_sinks or self.trace is not None):
            columns = decoded[1]
        return Batch(topic.name, publication.source, order, topic.end_offset, payload, columns, publication.sequence)

    def _pass_over(self, topic: LiveTopic, batch: Batch, publication: Publication) -> None:
        """A batch is not for subscribers: a client had handed it in twice, or it was only to have its place."""
        self._accept_own(publication)
        if self.process is not None:
            try:
                self.log.pass_over(self.process, topic, publication)
            except AntiphonError as error:
                self.fail(error)
                return
        if batch.count > 0:
            topic.repeated_batches += 1
            if self.trace is not None:
                self.trace.delivered(self.identifier, topic, batch, publication)

    def _accept_own(self, publication: Publication) -> None:
        if publication.source == self.identifier:
            self.receipts.accept_own(publication)

    def began_epoch(self, epoch: int, members: list[int], councils: list[list[int]]) -> None:
        """The process takes part in an epoch of total order: judges of traces want to know whose majority it has."""
        if self.trace is not None:
            self.trace.began_epoch(self.identifier, epoch, members, councils)

    def lost(self, number: int, source: int, sequence: int, is_late: bool) -> None:
        """Tell subscribers that this node will never deliver a publication: no node has kept it, or it came late."""
        topic = self._by_number[number]
        topic.lost_batches += 1
        topic.late_batches += is_late
        self._has_watched_news = topic.is_watched or self._has_watched_news
        if self.trace is not None:
            self.trace.lost(self.identifier, topic, source, sequence)
        if source == self.identifier:
            self.receipts.lost(topic, sequence)
        if self.checkpoints is not None:
            self.checkpoints.changed(topic)
        if topic.is_missing:
            # Subscribers are told once of each gap, however much is missing. But who has been told may believe that it
            # knows the rest: what is lost after that may have been published after that.
            return
        topic.is_missing = True
        cause = "late" if is_late else "gone"
        log.warning("messages are lost", topic=topic.name, publisher=source, number=sequence, cause=cause)
        if self._disk_first is not None:
            self._disk_first.then(topic.miss)
        else:
            self._to_show.append((topic, None))

    def has_capacity(self, number: int) -> bool:
        """Whether the subscribers here, and the disk, take what is delivered on a topic."""
        topic = self._by_number.get(number)
        is_behind = topic is not None and topic.is_behind
        return not is_behind and not self.is_disk_behind and (self.commit is None or not self.commit.trouble)

    def membership_began(self, number: int) -> None:
        """A subscription of the process is effective."""
        topic = self._by_number.get(number)
        if topic is None:
            self.cluster.membership_began(number)
            return
        if self.trace is not None:
            self.trace.subscribed(self.identifier, topic)
        topic.replay_buffer.begin(monotonic_us())
        self.log.take_last_shown(topic)
        if self.checkpoints is None:
            topic.log_from = topic.end_offset
        else:
            # Its log is one, whatever the memberships.
            self.checkpoints.changed(topic)
        self.sessions.became_member(topic)
        self.topics.became_member(topic)
        self.room_may_be_on(topic)

    def membership_ended(self, number: int) -> None:
        """A subscription of the process has ended."""
        topic = self._by_number[number]
        topic.replay_buffer.end()
        self._has_watched_news = topic.is_watched or self._has_watched_news
        if self.checkpoints is not None:
            self.checkpoints.left(topic)
        if self.trace is not None:
            self.trace.unsubscribed(self.identifier, topic)

    # Settling.

    def settle(self) -> None:
        """Bring the outside up to date with the process."""
        if self._is_settling:
            return
        self._is_settling = True
        writes = self._writes
        if self.checkpoints is not None and self.checkpoints.due:
            self.checkpoints.write(self.process)
        try:
            while True:
                # What others wait for leaves first: whoever is woken here has its turn later anyway.
                if writes.dirty:
                    writes.write_dirty()
                if self._to_take or self._to_show or self._has_watched_news:
                    self._show()
                if not self._to_show and not (self.blocked.ring and self._fill_room()):
                    break
        except ProtocolError as error:
            self.fail(error)
        finally:
            self._is_settling = False
        if writes.dirty:
            writes.write_dirty()
        if writes.with_credit and not writes.is_credit_scheduled:
            writes.schedule_credit()
        self.when_settled()

    def _show(self) -> None:
        """Let subscribers see what was delivered, and tell sessions that wait for it."""
        taken, self._to_take = self._to_take, []
        for of_topic, delivered in taken:
            for take in of_topic.takers:
                take(delivered)
        shown, self._to_show = self._to_show, []
        for topic, batch in shown:
            if batch is None:
                topic.miss()
            else:
                topic.show(batch)
        if self._has_watched_news:
            self._has_watched_news = False
            self.sessions.topics_changed()

    def _fill_room(self) -> bool:
        """Let blocked outboxes send what there is room for now; whether anything was sent."""
        if self.is_disk_behind:
            self._waited_for_disk = True
            return False
        moved = self.blocked.flush_due()
        if not moved and self.blocked.has_more and not self._is_filling_later:
            # The others have their turn when the loop has served its connections.
            self._is_filling_later = True
            self._loop.call_soon(self._fill_later)
        return moved

    def _fill_later(self) -> None:
        self._is_filling_later = False
        self.settle()
