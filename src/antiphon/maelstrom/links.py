"""Links between nodes over a network that loses, delays and reorders: reliable, in order, with few messages.

The processes of the tree need the promises of a connection: a message over a link arrives once and in order, until both
ends are told that the link is broken. Maelstrom's network promises none of that, and counts each message. So:

* **Few messages.** A message sent within ``gather_us`` of the last frame waits for the rest of that time and leaves in
  one frame with others. After a pause the first message leaves at once. Acknowledgements travel in frames of the other
  direction, and leave alone only after ``acknowledge_us``.
* **Nothing lost.** Frames are numbered and kept until they are acknowledged. A receiver that gets a later frame before
  an earlier one asks for the earlier one after ``gap_us``. When nothing was acknowledged for longer than answers take
  (estimated as in TCP, RFC 6298) the link is *stalled*: it sends nothing new, and only its first frame again, every
  ``probe_us``, until something arrives; then it sends everything. The same holds after a silence.
* **Both ends agree that a link has broken.** Each end counts how often it has begun anew, and every frame names both
  counts. An end that receives nothing for ``patience_us`` begins anew; the other end finds a higher count in the next
  frame that reaches it, and knows that what it sent before is lost. Frames that name another count than the current one
  are ignored.
* **The detector of live nodes notices silence** (:class:`antiphon.membership.heartbeats.FailureDetector`). It looks at
  the watched links, says which peers to ask for an answer and which are lost after ``patience_us``. A node that loses
  one link probes all others, because partitions seldom cut only one. A lost peer is asked every ``beat_us``, as a live
  node tries to connect again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from antiphon.maelstrom.protocol import Frame
from antiphon.maelstrom.timers import HostTimers
from antiphon.membership.heartbeats import FailureDetector
from antiphon.membership.host import SECOND_US, microseconds
from antiphon.membership.watched_peers import WatchedPeers

FRAMES_UNDER_WAY: Final = 64
"""The most unacknowledged frames; further messages wait."""

FRAMES_BEFORE_ACKNOWLEDGEMENT: Final = 16
"""So many frames are acknowledged at once, even if little time has passed."""

MESSAGES_IN_FRAME: Final = 512
FRAMES_HELD: Final = 256
"""The most early frames to hold; others are sent again."""

NEVER: Final = 1 << 62


class LinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds."""

    gather_us: int = 50_000
    acknowledge_us: int = 100_000
    gap_us: int = 25_000
    first_resend_us: int = 1_000_000
    """The resend time until the answer time is known, and its upper bound: after losses all answers seem slow."""
    least_resend_us: int = 250_000
    probe_us: int = 150_000
    beat_us: int = 700_000
    patience_us: int = 2_000_000


class AnswerTime:
    """Estimates how long an answer takes, and from when on one is late (RFC 6298)."""

    def __init__(self, options: LinkOptions) -> None:
        self._least_us = options.least_resend_us
        self._most_us = options.first_resend_us
        self._mean_us = 0.0
        self._deviation_us = 0.0
        self.late_after_us = options.first_resend_us

    def measured(self, answer_us: int) -> None:
        """Add a measured answer time."""
        if self._mean_us == 0:
            self._mean_us, self._deviation_us = answer_us, answer_us / 2
        else:
            self._deviation_us += (abs(answer_us - self._mean_us) - self._deviation_us) / 4
            self._mean_us += (answer_us - self._mean_us) / 8
        reckoned_us = int(self._mean_us + 4 * self._deviation_us)
        self.late_after_us = min(self._most_us, max(self._least_us, reckoned_us))


class FrameLink:
    """One end of the link to a peer."""

    def __init__(self, links: FrameLinks, peer: int) -> None:
        self.peer: Final = peer
        # Whether frames get through, as far as known.
        self.is_up = True
        self.frames_heard = 0
        self._links = links
        self._options = links.options
        self._mine = 1
        self._yours = 1
        # Messages to send, sent and unacknowledged frames, and frames that arrived early.
        self._queue: list[bytes] = []
        self._unacknowledged: deque[Frame] = deque()
        # When each frame was sent; 0 if more than once, because the answer is then ambiguous.
        self._times: deque[int] = deque()
        self._answers = AnswerTime(links.options)
        self._early: dict[int, list[bytes]] = {}
        self._is_stalled = False
        self._sent_last = 0
        self._got = 0
        self._said_got = 0
        self._sent_us = -NEVER
        self._heard_us = links.timers.now()
        # Since when the link is in doubt, since when no frame was acknowledged, and when the next steps are due.
        self._doubted_us = NEVER
        self._stalled_us = NEVER
        self._send_us = NEVER
        self._acknowledge_us = NEVER
        self._gap_us = NEVER
        self._resend_us = NEVER
        self._ask_us = NEVER
        self._give_up_us = NEVER

    # Calls of the host.

    def send(self, message: bytes) -> None:
        """Send a message; on a broken link it waits until the link is whole again, unless that takes too long."""
        now = self._links.timers.now()
        if not self._queue:
            self._send_us = max(now, self._sent_us + self._options.gather_us)
            if not self.is_up:
                self._give_up_us = now + self._options.patience_us
                self._ask_us = now
        self._queue.append(message)
        self._links.changed(self)

    def watch(self) -> None:
        """Report from now on when the link breaks and when it is whole again."""
        if self.peer in self._links.watched:
            return
        now = self._links.timers.now()
        self._links.watched.watch(self.peer)
        if not self.is_up:
            # It may have become whole unnoticed: it gets a little time to show that.
            self._give_up_us = now + self._options.beat_us
            self._ask_us = now
        self._links.look_out()
        self._links.changed(self)

    def unwatch(self) -> None:
        """Report nothing about the link any more."""
        self._links.watched.unwatch(self.peer)

    def ask(self) -> None:
        """The peer is silent: ask it for an answer, unless frames are sent again anyway."""
        if not self._is_stalled:
            now = self._links.timers.now()
            self._put(Frame(self._mine, self._yours, got=self._got, asks=True), now)

    def break_down(self) -> None:
        """The peer has been silent for so long that it counts as lost."""
        self._begin_anew(self._links.timers.now())
        self._links.changed(self)

    def doubt(self) -> None:
        """Find out whether the link is whole, although the host has not asked."""
        now = self._links.timers.now()
        if self.is_up and self._doubted_us == NEVER and now - self._heard_us >= self._options.beat_us // 2:
            self._doubted_us = now
            self._ask_us = now
            self._links.changed(self)

    # HostTimers.

    def due_us(self) -> int:
        """The time of the next step."""
        send_us = self._send_us if self._may_send() else NEVER
        answers_us = min(self._acknowledge_us, self._gap_us)
        return min(send_us, answers_us, self._resend_us, self._ask_us, self._give_up_us, self._break_us())

    def act(self) -> None:
        """Carry out the steps that are due."""
        now = self._links.timers.now()
        if now >= self._break_us():
            self._begin_anew(now)
        if now >= self._give_up_us:
            self._give_up()
        if self._may_send() and now >= self._send_us:
            self._send_queue(now)
        if now >= self._resend_us:
            self._resend(now)
        if now >= self._ask_us:
            self._ask(now)
        if now >= self._gap_us:
            self._tell_gap(now)
        if now >= self._acknowledge_us:
            self._put(Frame(self._mine, self._yours, got=self._got), now)

    def _may_send(self) -> bool:
        return self.is_up and not self._is_stalled and len(self._unacknowledged) < FRAMES_UNDER_WAY

    def _break_us(self) -> int:
        """When the link must be given up unless something arrives."""
        if not self.is_up:
            return NEVER
        since = self._doubted_us
        if self._unacknowledged:
            # While anything arrives, frames will get through sooner or later.
            since = min(since, max(self._heard_us, self._stalled_us))
        return since + self._options.patience_us

    def _send_queue(self, now: int) -> None:
        while self._queue and len(self._unacknowledged) < FRAMES_UNDER_WAY:
            messages, self._queue = self._queue[:MESSAGES_IN_FRAME], self._queue[MESSAGES_IN_FRAME:]
            self._sent_last += 1
            frame = Frame(self._mine, self._yours, self._sent_last, self._got, messages)
            if not self._unacknowledged:
                self._stalled_us = now
                self._resend_us = now + self._answers.late_after_us
            self._unacknowledged.append(frame)
            self._times.append(now)
            self._put(frame, now)
        self._send_us = NEVER if not self._queue else now

    def _put(self, frame: Frame, now: int) -> None:
        self._sent_us = now
        self._said_got = frame.got
        self._acknowledge_us = NEVER
        self._links.write(self.peer, frame)

    def _resend(self, now: int) -> None:
        """Nothing was acknowledged for too long: send one frame again, to find out when others get through."""
        self._is_stalled = True
        self._resend_us = now + self._options.probe_us
        self._put_again(self._unacknowledged[0], now, True)

    def _put_again(self, frame: Frame, now: int, asks: bool) -> None:
        self._times[frame.number - self._unacknowledged[0].number] = 0
        self._put(Frame(self._mine, self._yours, frame.number, self._got, frame.messages, asks), now)

    def _put_all_again(self, before: int, now: int) -> None:
        """Send unacknowledged frames again, up to a number, except those that were requested recently."""
        self._is_stalled = False
        if self._unacknowledged:
            self._resend_us = now + self._answers.late_after_us
        for frame in self._unacknowledged:
            if frame.number < before:
                self._put_again(frame, now, False)

    def _tell_gap(self, now: int) -> None:
        """Ask for frames that are missing before later ones, until they arrive."""
        self._gap_us = now + self._options.probe_us if self._early else NEVER
        if self._early:
            self._put(Frame(self._mine, self._yours, got=self._got, gap=min(self._early)), now)

    def _ask(self, now: int) -> None:
        """Find out whether a link that is broken or in doubt is whole, and plan the next attempt."""
        wanted = self.peer in self._links.watched or bool(self._queue)
        if self._doubted_us == NEVER and (self.is_up or not wanted):
            self._ask_us = NEVER
            return
        self.ask()
        self._ask_us = now + (self._options.probe_us if self.is_up else self._options.beat_us)

    def _begin_anew(self, now: int) -> None:
        """Nothing has arrived for too long: frames in transit are lost."""
        self._mine += 1
        self._forget()
        self._queue.clear()
        self._send_us = NEVER
        self.is_up = False
        self._ask_us = now
        self._links.watched.lost(self.peer)
        self._links.doubt_others(self)

    def _forget(self) -> None:
        self._unacknowledged.clear()
        self._times.clear()
        self._is_stalled = False
        self._gap_us = NEVER
        self._early.clear()
        self._sent_last = 0
        self._got = 0
        self._said_got = 0
        self._doubted_us = NEVER
        self._stalled_us = NEVER
        self._resend_us = NEVER
        self._acknowledge_us = NEVER

    def _give_up(self) -> None:
        """The peer has not answered: waiting messages are lost, and the watcher is told."""
        self._give_up_us = NEVER
        if not self.is_up:
            self._queue.clear()
            self._links.watched.lost(self.peer)

    # Frames from the peer.

    def receive(self, frame: Frame) -> None:
        """Handle a frame from the peer."""
        now = self._links.timers.now()
        if frame.mine < self._yours:
            return
        was_silent = now - self._heard_us >= self._options.beat_us
        self._heard_us = now
        self.frames_heard += 1
        self._doubted_us = NEVER
        if frame.mine > self._yours:
            self._peer_began_anew(frame)
        if frame.yours != self._mine:
            # The peer does not know yet that this end has begun anew.
            self._put(Frame(self._mine, self._yours, got=self._got), now)
            return
        if not self.is_up:
            self._is_whole(now)
        self._acknowledged(frame.got, now)
        if self._is_stalled or was_silent:
            # Frames sent into the silence are most likely lost.
            self._put_all_again(NEVER, now)
        elif frame.gap > 0:
            self._put_all_again(frame.gap, now)
        if frame.number > 0:
            self._take(frame, now)
        if frame.asks:
            self._acknowledge_us = now
        self._links.changed(self)

    def _peer_began_anew(self, frame: Frame) -> None:
        """The peer has begun anew: earlier frames of both directions are lost."""
        self._yours = frame.mine
        self._forget()
        if self.is_up:
            self.is_up = False
            self._queue.clear()
            self._send_us = NEVER
            self._links.watched.lost(self.peer)

    def _is_whole(self, now: int) -> None:
        self.is_up = True
        self._give_up_us = NEVER
        if self._queue:
            self._send_us = now
        # The other end must know too.
        self._acknowledge_us = now
        self._links.watched.found(self.peer)

    def _acknowledged(self, got: int, now: int) -> None:
        before = len(self._unacknowledged)
        while self._unacknowledged and self._unacknowledged[0].number <= got:
            self._unacknowledged.popleft()
            sent_us = self._times.popleft()
            if sent_us > 0:
                self._answers.measured(now - sent_us)
        if not self._unacknowledged:
            self._stalled_us = NEVER
            self._resend_us = NEVER
        elif len(self._unacknowledged) < before:
            self._stalled_us = now
            self._resend_us = now + self._answers.late_after_us

    def _take(self, frame: Frame, now: int) -> None:
        if frame.number <= self._got:
            # It was sent again because the acknowledgement did not arrive.
            self._acknowledge_us = now
            return
        if frame.number > self._got + 1:
            if not self._early:
                self._gap_us = now + self._options.gap_us
            if len(self._early) < FRAMES_HELD:
                self._early[frame.number] = frame.messages
            return
        beginning = (self._mine, self._yours)
        messages: list[bytes] | None = frame.messages
        while messages is not None:
            self._got += 1
            for message in messages:
                self._links.received(self.peer, message)
                if (self._mine, self._yours) != beginning:
                    return
            messages = self._early.pop(self._got + 1, None)
        self._gap_us = now + self._options.gap_us if self._early and self._gap_us == NEVER else self._gap_us
        at_once = self._got - self._said_got >= FRAMES_BEFORE_ACKNOWLEDGEMENT
        self._acknowledge_us = min(self._acknowledge_us, now if at_once else now + self._options.acknowledge_us)


class FrameLinks:
    """The links of a node; each is called when a step of it is due."""

    def __init__(
        self,
        timers: HostTimers,
        options: LinkOptions,
        write: Callable[[int, Frame], None],
        received: Callable[[int, bytes], None],
        lost: Callable[[int], None],
        found: Callable[[int], None],
    ) -> None:
        self.timers: Final = timers
        self.options: Final = options
        self.write: Final = write
        self.received: Final = received
        self.watched: Final = WatchedPeers(lost, found)
        self._links: dict[int, FrameLink] = {}
        self._planned_us: dict[int, int] = {}
        self._changed: dict[int, FrameLink] = {}
        self._detector = FailureDetector(options.patience_us / SECOND_US, timers.now() / SECOND_US)
        self._is_looking_out = False

    def to(self, peer: int) -> FrameLink:
        """The link to a peer, made at its first use."""
        link = self._links.get(peer)
        if link is None:
            link = FrameLink(self, peer)
            self._links[peer] = link
        return link

    def changed(self, link: FrameLink) -> None:
        """A step of a link may be due earlier."""
        self._changed[link.peer] = link

    def look_out(self) -> None:
        """Look again and again which watched peers are silent, while there are any."""
        if not self._is_looking_out:
            self._is_looking_out = True
            self.timers.after(microseconds(self._detector.look_seconds), self._poll)

    def _poll(self) -> None:
        self._is_looking_out = False
        heard = {peer: link.frames_heard for peer, link in self._links.items() if peer in self.watched and link.is_up}
        silent = self._detector.poll(self.timers.now() / SECOND_US, heard)
        for peer in silent.asked:
            self._links[peer].ask()
        for peer in silent.lost:
            self._links[peer].break_down()
        if self.watched:
            self.look_out()

    def doubt_others(self, lost: FrameLink) -> None:
        """One link has broken: probe all others."""
        for link in list(self._links.values()):
            if link is not lost:
                link.doubt()

    def settle(self) -> None:
        """Carry out due steps of changed links, and plan the rest."""
        while self._changed:
            changed, self._changed = self._changed, {}
            for link in changed.values():
                now = self.timers.now()
                due = link.due_us()
                if due <= now:
                    link.act()
                    due = link.due_us()
                if due < self._planned_us.get(link.peer, NEVER):
                    self._planned_us[link.peer] = due
                    self.timers.at(due, lambda link=link, due=due: self._wake(link, due))  # type: ignore[misc]

    def _wake(self, link: FrameLink, due: int) -> None:
        if self._planned_us.get(link.peer) == due:
            del self._planned_us[link.peer]
        self.changed(link)
