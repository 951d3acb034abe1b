"""Where a broker stands in the tree: failures noticed, new parents found.

Follows section 4.2 of the dissertation: the children of a failed broker look for a new parent in their local view, with
degree limits that give way when nobody has room; the children of a failed root decide who replaces it. What is
different here, and why it is safe, is argued in ``docs/architecture.md``; in short:

* **Only the root grants a parent.** A request travels from the broker that was asked up to the root, and the answer
  comes back the same way. A request that meets a broker without a way to the root, or the one that asks, is refused; so
  two parts of the tree that both look for a parent cannot adopt each other.
* **The root knows whom it can reach.** Losses and attachments are reported upwards on the same links as everything
  else. What the root makes of it is in ``root.py``.
* **No election messages.** All that know the same epoch agree on who follows the root (``Overlay.successors``).

Without a quorum failures are crashes, told by ``peer_lost`` and taken at their word. With one, who is lost may be found
again, and a broker believes only what it has seen itself.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.durable_state import NUMBERS, Journal, Wait
from antiphon.fabrics.tree.messages import (
    Attached,
    Echo,
    Goodbye,
    Hello,
    Join,
    Lost,
    ParentAnswer,
    ParentRequest,
    Probe,
    Ready,
)
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.quorum import Council
from antiphon.fabrics.tree.topology import Overlay, overlay_of_newcomer
from antiphon.kernel.message import Message
from antiphon.kernel.process import NO_NODE, Environment, Process

PATIENCE: Final[i64] = 1
COLLECT: Final[i64] = 2
CLAIM: Final[i64] = 3
CHANGE: Final[i64] = 4
GIVE_UP: Final[i64] = 5
"""Names of timers, of all parts."""

DOUBLINGS_AT_MOST: Final[i64] = 6
"""So often the time between two questions is doubled while there is no answer."""

NOT_A_CHILD: Final[i64] = 0
"""The number of an answer to no request: the broker that gets it is no child of the one that sent it."""

NO_EPOCH: Final[i64] = 0
"""A newcomer's: its tree is those whom it may ask for a place in the real one."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Attachment(Process):
    """The part of a broker that finds it a place in the tree."""

    def __init__(self, environment: Environment, options: TreeOptions, overlay: Overlay) -> None:
        super().__init__(environment)
        self.options: Final[TreeOptions] = options
        self.journal: Final[Journal] = Journal(environment)
        past = self.journal.past
        # Whether this is a later life of a broker, which knows what it has written down and has no place in the tree.
        self.is_returning: Final[bool] = past is not None
        if past is not None and past.overlay.epoch > NO_EPOCH:
            overlay = past.overlay
        # The latest epoch that this broker has heard of, and the one that it has been told to begin.
        self.overlay: Overlay = overlay
        self.current: Overlay = overlay_of_newcomer(int(self.me), []) if self.is_returning else overlay
        self.parent: i64 = self.current.parents.get(self.me, NO_NODE)
        self.is_root: bool = self.current.root == self.me
        # Each child, with the parents of all brokers below it that have a way to this one. None: not heard from yet.
        self.children: dict[i64, dict[int, int] | None] = {}
        for child in self.current.children_of(self.me):
            self.children[child] = overlay.below(child)
        # The attempt for which a child that has not been heard from yet was accepted.
        self._granted: dict[i64, i64] = {}
        # What is to be said of a child that has not sent everything yet, and of those that have.
        self._unready: dict[i64, Attached] = {}
        self._news: list[Attached] = []
        self._must_say_ready: bool = False
        # Who cannot be reached: found out here, or, where failures are taken at their word, heard of.
        self.dead: set[int] = set()
        # Everybody who is in the tree or is waited for, the highest epoch heard of, and whose majorities are needed.
        self.known: set[int] = {*overlay.parents, *overlay.absent}
        self.highest: i64 = overlay.epoch if past is None else past.epoch
        self.council: Council = overlay.council if past is None else past.council
        # As root: whether all living brokers have a way here, in the current epoch.
        self.is_complete: bool = True
        # The search for a parent: who was asked, and who is left to be asked.
        self._attempt: i64 = 0
        self._first_attempt: i64 = 1
        self._asked: i64 = NO_NODE
        self.candidates: list[int] = []
        self.tried: set[int] = set()
        self._is_forced: bool = False
        self._patience: i64 = -1
        # How often it has looked, and who has answered in this search, the nearest first.
        self._searches: i64 = 0
        self._echoes: list[int] = []
        # How often its time of waiting for answers has been doubled.
        self._doublings: i64 = 0

    @property
    def epoch(self) -> i64:
        """The epoch that this broker is in."""
        return self.current.epoch

    @property
    def can_order(self) -> bool:
        """Whether total publications are completed in it."""
        return self.current.can_order

    def start(self) -> None:
        if self.parent != NO_NODE:
            self.environment.watch(self.parent)
        for child in self.children:
            self.environment.watch(child)
        if self.journal.is_kept:
            # Nothing is published before the incarnation is on disk.
            self.reserve_numbers(self.journal.first_number)
        if self.overlay.epoch == NO_EPOCH or self.is_returning:
            # A newcomer knows nothing but whom to ask.
            self.search()

    def reserve_numbers(self, number: i64) -> None:
        """See to it that numbers beyond this one can be used."""
        self.journal.reserve_numbers(number)
        self.journal.write_standing(self.overlay, self.council, self.highest)
        self.journal.is_safe(NUMBERS)

    def synced(self) -> None:
        self.is_on_disk(self.journal.next_safe())

    def is_on_disk(self, wait: Wait) -> None:
        """What waited for the disk goes on."""

    # What the parts above add.

    def parent_gone(self) -> None:
        """The link to the parent is no more."""

    def child_gone(self, child: i64) -> None:
        """The link to a child is no more."""

    def joins(self) -> list[Join]:
        """What a new parent must be asked to carry."""
        return []

    def is_joining(self) -> bool:
        """Whether the parent has not answered yet about all topics that it was asked to carry."""
        return False

    def handle_join(self, child: i64, join: Join) -> None:
        """A child asks for a topic."""
        raise NotImplementedError

    def look_for_missing(self) -> None:
        """As root: see who has no way here."""
        raise NotImplementedError

    def learn(self, overlay: Overlay, council: Council, highest: i64) -> None:
        """Take over what another broker knows of the tree, if it is later than what is known here."""
        raise NotImplementedError

    def became_root(self) -> None:
        """This broker takes over."""

    # Failures.

    def peer_lost(self, peer: i64) -> None:
        self.dead.add(peer)
        if peer in self.children:
            self._lose_child(peer)
        if peer == self.parent:
            self._leave_parent()
        elif self.parent == NO_NODE and not self.is_root:
            if peer == self._asked:
                self._ask_next()
            self._consider_succession()
        if self.is_root:
            self.look_for_missing()

    def _leave_parent(self) -> None:
        self.parent = NO_NODE
        self._must_say_ready = False
        self.parent_gone()
        self.search()

    def _lose_child(self, child: i64) -> None:
        below = self.children.pop(child)
        self._granted.pop(child, None)
        self._unready.pop(child, None)
        # The root must know before it hears anything that is said without this child.
        if self.parent != NO_NODE:
            self._report_loss(child, [int(child), *(below or {})])
        elif self.is_root:
            self.is_complete = False
        self.child_gone(child)

    def _report_loss(self, child: i64, gone: list[int]) -> None:
        """Tell the parent who is gone, and where those are that have found another way here before that was known."""
        reached = self.reached()
        if not self.options.quorum:
            # Who has failed may have been accepted elsewhere shortly before.
            reached.pop(child, None)
        for attached in self._news:
            # Their way has not been reported yet, and will be.
            for broker in attached.parents:
                reached.pop(broker, None)
        self.environment.send(self.parent, Lost(child, sorted(broker for broker in gone if broker not in reached)))
        moved = {broker: reached[broker] for broker in gone if broker in reached}
        if moved:
            # What the parent has heard last of them may be what has turned out to be wrong.
            self._news.append(Attached(moved, self.overlay, self.council, self.highest))
            self.pass_on_news()

    def _receive_lost(self, sender: i64, lost: Lost) -> None:
        below = self.children.get(sender)
        unready = self._unready.get(sender)
        if unready is not None:
            below = unready.parents
        if below is None:
            return
        if not self.options.quorum:
            self.dead.add(lost.source)
        for broker in lost.orphans:
            below.pop(broker, None)
        if self.parent != NO_NODE:
            self._report_loss(lost.source, lost.orphans)
        elif self.is_root:
            self.is_complete = False
            self.look_for_missing()

    def reached(self) -> dict[int, int]:
        """All brokers below this one that have a way here, with their parents."""
        found: dict[int, int] = {}
        for child, below in self.children.items():
            if below is not None:
                found[int(child)] = int(self.me)
                found.update(below)
        # A former parent that has not noticed yet may have come below this broker.
        found.pop(int(self.me), None)
        return found

    # The search for a parent.

    def search(self) -> None:
        """Look for a parent: in the local view first, then among all brokers."""
        overlay = self.overlay
        view = overlay.neighbourhood(self.me, self.options.max_hops, self.options.ancestors_first)
        everybody = self.known if self.options.quorum else overlay.parents
        others = [broker for broker in sorted(everybody) if broker not in view]
        mine = self.reached()
        self.candidates = [
            broker for broker in view + others if broker != self.me and broker not in mine and broker not in self.dead
        ]
        self._asked = NO_NODE
        self.tried = set()
        self._searches += 1
        self._echoes = []
        if overlay.root != NO_NODE and overlay.root not in self.dead:
            self.environment.watch(overlay.root)
        if self._consider_succession():
            return
        near = [broker for broker in view if broker in self.candidates]
        if self.options.nearest_first and len(near) > 1:
            for broker in near:
                self.environment.send(broker, Probe(self.me, self._searches))
            self._stop_asking()
            self._be_patient()
        else:
            self._ask_next()

    def _be_patient(self) -> None:
        self._patience = self.environment.set_timer(self.options.patience_ticks << self._doublings, PATIENCE)

    def _receive_echo(self, sender: i64, echo: Echo) -> None:
        """Those who answer are asked for a place in the order in which they answer, before all others."""
        is_searching = self.parent == NO_NODE and not self.is_root
        if not is_searching or echo.sequence != self._searches or sender not in self.candidates:
            return
        self.candidates.remove(int(sender))
        self._echoes.append(int(sender))
        waiting = [broker for broker in self._echoes if broker not in self.tried]
        rest = [broker for broker in self.candidates if broker not in waiting]
        self.candidates = waiting + rest
        if self._asked == NO_NODE:
            self._ask_next()

    def _consider_succession(self) -> bool:
        """Become the root if the first of the successors who lives is this broker, or below it; else watch that one."""
        mine = self.reached()
        if self.overlay.epoch == NO_EPOCH:
            return False
        for broker in self.overlay.successors(self.options.total_degree):
            if broker == self.me or broker in mine:
                self._become_root()
                return True
            if broker not in self.dead:
                self.environment.watch(broker)
                return False
        return False

    def _become_root(self) -> None:
        self.is_root = True
        self.is_complete = False
        self._first_attempt = self._attempt + 1
        self._stop_asking()
        self.candidates = []
        self.became_root()
        self.look_for_missing()

    def _stop_asking(self) -> None:
        self._asked = NO_NODE
        if self._patience >= 0:
            self.environment.cancel_timer(self._patience)
            self._patience = -1

    def _ask_next(self) -> None:
        """Ask the next candidate; after the last wait, and begin again, this time to be accepted in any case."""
        self._stop_asking()
        mine = self.reached()
        while self.candidates:
            candidate = self.candidates.pop(0)
            if candidate not in self.dead and candidate not in mine:
                self._attempt += 1
                self._asked = candidate
                self.tried.add(candidate)
                self.environment.watch(candidate)
                self.environment.send(candidate, ParentRequest(self.me, self._attempt, self._is_forced, []))
                break
        else:
            self._is_forced = True
        self._be_patient()

    def _patience_ends(self) -> None:
        self._patience = -1
        if self.parent == NO_NODE and not self.is_root:
            if self.candidates:
                self._ask_next()
            else:
                self._is_forced = True
                # Answers may take longer than expected, and asking again makes them no faster.
                self._doublings = min(self._doublings + 1, DOUBLINGS_AT_MOST)
                self.search()

    def _has_room_for(self, orphan: i64) -> bool:
        neighbours = len(self.children) + (0 if self.is_root else 1)
        return neighbours < self.options.total_degree or orphan in self.children

    def _receive_request(self, sender: i64, request: ParentRequest) -> None:
        """A request from an orphan, or from below on its way to the root."""
        is_asked = not request.route
        if not is_asked and sender not in self.children:
            return
        if is_asked and (self.children.get(sender) is not None or sender in self._unready):
            # A child that asks for a parent has noticed that the link was broken; it was not noticed here.
            self._lose_child(sender)
        no_way = self.parent == NO_NODE and not self.is_root
        if (
            request.source == self.me
            or no_way
            or (is_asked and not self._has_room_for(request.source) and not request.is_forced)
        ):
            self._answer(ParentAnswer(request.source, request.sequence, False, request.route, self.overlay))
        elif self.is_root:
            self._answer(ParentAnswer(request.source, request.sequence, True, request.route, self.overlay))
        else:
            route = [*request.route, int(self.me)]
            forward = ParentRequest(request.source, request.sequence, request.is_forced, route)
            self.environment.send(self.parent, forward)

    def _answer(self, answer: ParentAnswer) -> None:
        """Send an answer back one step of the way that the request came; at its end the orphan is told."""
        if answer.route:
            back = answer.route[-1]
            if back in self.children:
                rest = ParentAnswer(
                    answer.source, answer.sequence, answer.is_granted, answer.route[:-1], answer.overlay
                )
                self.environment.send(back, rest)
            return
        if answer.source in self.dead:
            return
        if answer.is_granted and self.children.get(answer.source) is None:
            # The child counts once it has said who is below it.
            self.children[answer.source] = None
            self._granted[answer.source] = answer.sequence
            self.environment.watch(answer.source)
        self.environment.send(answer.source, answer)

    def _receive_answer(self, sender: i64, answer: ParentAnswer) -> None:
        if answer.source != self.me:
            if sender == self.parent:
                self._answer(answer)
        elif sender not in self.dead:
            self._take_answer(sender, answer)

    def _take_answer(self, sender: i64, answer: ParentAnswer) -> None:
        self.learn(answer.overlay, answer.overlay.council, answer.overlay.epoch)
        # An answer that comes late is as good as any, but not one to an earlier search: much may have changed since.
        is_wanted = self.parent == NO_NODE and not self.is_root and answer.sequence >= self._first_attempt
        if answer.sequence == NOT_A_CHILD:
            if sender == self.parent:
                self._leave_parent()
        elif answer.is_granted:
            if is_wanted:
                self._attach_to(sender, answer.sequence)
            elif sender != self.parent:
                self.environment.send(sender, Goodbye(self.me, answer.sequence))
        elif not is_wanted or answer.sequence != self._attempt:
            return
        elif not self._consider_succession():
            self._ask_next()

    def _attach_to(self, parent: i64, attempt: i64) -> None:
        self._stop_asking()
        self.candidates = []
        self._is_forced = False
        self._doublings = 0
        self._first_attempt = self._attempt + 1
        self.parent = parent
        self.environment.watch(parent)
        # Those below that the root has not heard of go with this broker.
        self._news = []
        self._must_say_ready = True
        hello = Hello(self.me, attempt, self.reached(), self.overlay, self.council, self.highest, self.joins())
        self.environment.send(parent, hello)
        self.pass_on_news()

    def disown(self, broker: i64) -> None:
        """Tell a broker that takes this one for its parent that it is no child: the link was broken in between.

        A broker that stood still learns of a break after it has granted a place to the very broker that was behind it.
        """
        self.environment.send(broker, ParentAnswer(broker, NOT_A_CHILD, False, [], self.overlay))

    # News from below and above.

    def _receive_hello(self, child: i64, hello: Hello) -> None:
        # The child may have asked again meanwhile; it goes by the first answer that it gets.
        if self._granted.pop(child, 0) == 0:
            self.disown(child)
            return
        for join in hello.joins:
            self.handle_join(child, join)
        parents = {int(child): int(self.me), **hello.parents}
        self._unready[child] = Attached(parents, hello.overlay, hello.council, hello.epoch)

    def _receive_attached(self, child: i64, attached: Attached) -> None:
        below = self.children.get(child)
        if below is None:
            return
        below.update(attached.parents)
        self._news.append(attached)
        self.pass_on_news()

    def _receive_ready(self, child: i64) -> None:
        """A child has sent everything that it had."""
        attached = self._unready.pop(child, None)
        if attached is not None:
            self.children[child] = {broker: parent for broker, parent in attached.parents.items() if broker != child}
            self._news.append(attached)
            self.pass_on_news()

    def pass_on_news(self) -> None:
        """Tell the root who has found a way here, once everything that they had has been sent towards it too."""
        if self.is_joining():
            return
        news = self._news
        self._news = []
        if self._must_say_ready:
            # What is said below is said after it.
            self._must_say_ready = False
            self.environment.send(self.parent, Ready(self.me, 0))
        reached = self.reached() if news else {}
        for attached in news:
            self.learn(attached.overlay, attached.council, attached.epoch)
            if self.parent != NO_NODE:
                # Some may be lost again since.
                parents = {broker: reached[broker] for broker in attached.parents if broker in reached}
                news_of_these = Attached(parents, attached.overlay, attached.council, attached.epoch)
                self.environment.send(self.parent, news_of_these)
            elif self.is_root:
                self.is_complete = False
        if news and self.is_root:
            self.look_for_missing()

    def receive(self, sender: i64, message: Message) -> None:
        if isinstance(message, ParentRequest):
            self._receive_request(sender, message)
        elif isinstance(message, ParentAnswer):
            self._receive_answer(sender, message)
        elif isinstance(message, Probe):
            self.environment.send(sender, Echo(self.me, message.sequence))
        elif isinstance(message, Echo):
            self._receive_echo(sender, message)
        elif isinstance(message, Hello):
            self._receive_hello(sender, message)
        elif isinstance(message, Attached):
            self._receive_attached(sender, message)
        elif isinstance(message, Ready):
            self._receive_ready(sender)
        elif isinstance(message, Lost):
            self._receive_lost(sender, message)
        else:
            assert isinstance(message, Goodbye), "brokers send each other nothing else"
            self._receive_goodbye(sender, message)

    def _receive_goodbye(self, sender: i64, goodbye: Goodbye) -> None:
        if self._granted.get(sender, 0) == goodbye.sequence:
            del self._granted[sender]
            del self.children[sender]

    def expire(self, name: i64) -> None:
        if name == PATIENCE:
            self._patience_ends()

    def unfinished(self) -> i64:
        searching = 1 if self.parent == NO_NODE and not self.is_root else 0
        incomplete = 1 if self.is_root and not self.is_complete else 0
        return searching + incomplete
