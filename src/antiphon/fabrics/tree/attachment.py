"""The links of a broker to its parent and its children: lost neighbours, granted places, the brokers below each child.

Follows section 4.2 of the dissertation, with degree limits that give way when no broker has room.
``docs/proofs/broker-tree.md`` argues why the differences are safe; in short:

* **Only the root grants a parent.** A request travels from the broker that was asked up to the root, and the answer
  comes back the same way. A request that meets a broker without a way to the root, or the one that asks, is refused; so
  two parts of the tree that both look for a parent cannot adopt each other.
* **The root knows which brokers it can reach.** Brokers report losses and attachments upwards on the same links as
  everything else. ``root.py`` acts on the reports.

Without a quorum a failure is a crash: ``peer_lost`` reports it, and brokers believe it. With a quorum a lost broker may
be found again, and a broker believes only its own observations.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from antiphon.fabrics.tree.messages import (
    NOT_A_CHILD,
    Attached,
    BrokerHello,
    Goodbye,
    JoinRequest,
    Lost,
    ParentRequest,
    ParentResponse,
    Ready,
    not_a_child,
)
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.parent_search import ParentSearch
from antiphon.fabrics.tree.view import TreeView
from antiphon.kernel.process import NO_NODE, Environment


@mypyc_attr(allow_interpreted_subclasses=True)
class AttachmentEvents:
    """The links of a broker tell this to its other parts, and ask them."""

    def on_parent_lost(self) -> None:
        """The link to the parent is no more."""
        raise NotImplementedError

    def on_child_lost(self, child: i64) -> None:
        """The link to a child is no more."""
        raise NotImplementedError

    def look_for_missing(self) -> None:
        """As root: look for brokers that have no way here."""
        raise NotImplementedError

    def joins(self) -> list[JoinRequest]:
        """The topics that a new parent must be asked to carry."""
        raise NotImplementedError

    def is_joining(self) -> bool:
        """Whether the parent has not answered yet about all topics that it was asked to carry."""
        raise NotImplementedError

    def handle_join(self, child: i64, join: JoinRequest) -> None:
        """A child asks for a topic."""
        raise NotImplementedError


@final
class Attachment:
    """Keeps a broker attached to the tree, and those below it."""

    def __init__(
        self,
        environment: Environment,
        options: TreeOptions,
        view: TreeView,
        search: ParentSearch,
        events: AttachmentEvents,
    ) -> None:
        self._environment: Final[Environment] = environment
        self._options: Final[TreeOptions] = options
        self._view: Final[TreeView] = view
        self._search: Final[ParentSearch] = search
        self._events: Final[AttachmentEvents] = events
        # The attempts for which a child was accepted over this link, while it has not said which of them it goes by.
        self._granted: dict[i64, set[int]] = {}
        # What is to be said of a child that has not sent everything yet, and of those that have.
        self._unready: dict[i64, Attached] = {}
        self._news: list[Attached] = []
        self._must_say_ready: bool = False

    def watch_neighbours(self) -> None:
        """Ask to be told when a neighbour fails."""
        if self._view.parent != NO_NODE:
            self._environment.watch(self._view.parent)
        for child in self._view.children:
            self._environment.watch(child)

    # Failures.

    def peer_lost(self, peer: i64) -> None:
        """A broker cannot be reached."""
        view = self._view
        view.dead.add(peer)
        if peer in view.children:
            self._lose_child(peer)
        if peer == view.parent:
            self._leave_parent()
        elif not view.has_place:
            self._search.peer_lost(peer)
        if view.is_root:
            self._events.look_for_missing()

    def _leave_parent(self) -> None:
        self._view.parent = NO_NODE
        self._view.is_counted = False
        self._must_say_ready = False
        self._events.on_parent_lost()
        self._search.begin()

    def _lose_child(self, child: i64) -> None:
        view = self._view
        below = view.children.pop(child)
        self._granted.pop(child, None)
        self._unready.pop(child, None)
        # The root must know before it hears anything that is said without this child.
        if view.parent != NO_NODE:
            self._report_loss(child, [int(child), *(below or {})])
        elif view.is_root:
            view.is_complete = False
        self._events.on_child_lost(child)

    def _report_loss(self, child: i64, gone: list[int]) -> None:
        """Tell the parent of a loss, and of orphans that had already found another way here."""
        view = self._view
        reached = view.reached()
        if not self._options.quorum:
            # A failed broker may have been accepted elsewhere shortly before.
            reached.pop(child, None)
        for attached in self._news:
            # Their way has not been reported yet, and will be.
            for broker in attached.parents:
                reached.pop(broker, None)
        self._environment.send(view.parent, Lost(child, sorted(broker for broker in gone if broker not in reached)))
        moved = {broker: reached[broker] for broker in gone if broker in reached}
        if moved:
            # What the parent has heard last of them may be what has turned out to be wrong.
            self._news.append(Attached(moved, view.overlay, view.council, view.highest))
            self.pass_on_news()

    def on_lost(self, sender: i64, lost: Lost) -> None:
        """A broker below a child is lost."""
        view = self._view
        below = view.children.get(sender)
        unready = self._unready.get(sender)
        if unready is not None:
            below = unready.parents
        if below is None:
            return
        if not self._options.quorum:
            view.dead.add(lost.source)
        for broker in lost.orphans:
            below.pop(broker, None)
        if view.parent != NO_NODE:
            self._report_loss(lost.source, lost.orphans)
        elif view.is_root:
            view.is_complete = False
            self._events.look_for_missing()

    # Requests for a place, and their answers.

    def _has_room_for(self, orphan: i64) -> bool:
        view = self._view
        neighbours = len(view.children) + (0 if view.is_root else 1)
        return neighbours < self._options.total_degree or orphan in view.children

    def on_parent_request(self, sender: i64, request: ParentRequest) -> None:
        """A request from an orphan, or from below on its way to the root."""
        view = self._view
        is_asked = not request.route
        if not is_asked and sender not in view.children:
            return
        if is_asked and (view.children.get(sender) is not None or sender in self._unready):
            # A child that asks for a parent has noticed that the link was broken; it was not noticed here.
            self._lose_child(sender)
        if (
            request.source == view.me
            or not view.has_place
            or (is_asked and not self._has_room_for(request.source) and not request.is_forced)
        ):
            self._answer(ParentResponse(request.source, request.sequence, False, request.route, view.overlay))
        elif view.is_root:
            self._answer(ParentResponse(request.source, request.sequence, True, request.route, view.overlay))
        else:
            route = [*request.route, int(view.me)]
            forward = ParentRequest(request.source, request.sequence, request.is_forced, route)
            self._environment.send(view.parent, forward)

    def _answer(self, answer: ParentResponse) -> None:
        """Send an answer back one step of the way that the request came; at its end the orphan is told."""
        view = self._view
        if answer.route:
            back = answer.route[-1]
            if back in view.children:
                rest = ParentResponse(
                    answer.source, answer.sequence, answer.is_granted, answer.route[:-1], answer.overlay
                )
                self._environment.send(back, rest)
            return
        if answer.source in view.dead:
            return
        is_child = view.children.get(answer.source) is not None or answer.source in self._unready
        if answer.is_granted and not is_child:
            # The child counts once it has named the brokers below it.
            view.children[answer.source] = None
            self._granted.setdefault(answer.source, set()).add(int(answer.sequence))
            self._environment.watch(answer.source)
        self._environment.send(answer.source, answer)

    def on_parent_response(self, sender: i64, answer: ParentResponse) -> None:
        """An answer to this broker, or one on its way back from the root to a broker below."""
        if answer.source != self._view.me:
            if sender == self._view.parent:
                self._answer(answer)
        elif sender not in self._view.dead:
            self._take_answer(sender, answer)

    def _take_answer(self, sender: i64, answer: ParentResponse) -> None:
        view = self._view
        view.learn(answer.overlay, answer.overlay.council, answer.overlay.epoch)
        if answer.sequence == NOT_A_CHILD:
            if sender == view.parent:
                self._leave_parent()
        elif not answer.is_granted:
            self._search.refused(answer.sequence)
        elif self._search.wants(answer.sequence):
            self._attach_to(sender, answer.sequence)
        elif sender != view.parent:
            self._environment.send(sender, Goodbye(view.me, answer.sequence))

    def _attach_to(self, parent: i64, attempt: i64) -> None:
        view = self._view
        self._search.end()
        view.parent = parent
        self._environment.watch(parent)
        # Those below that the root has not heard of go with this broker.
        self._news = []
        self._must_say_ready = True
        joins = self._events.joins()
        hello = BrokerHello(view.me, attempt, view.reached(), view.testimony(), view.council, view.highest, joins)
        self._environment.send(parent, hello)
        self.pass_on_news()

    def on_goodbye(self, sender: i64, goodbye: Goodbye) -> None:
        """A broker that was granted a place here has found another one."""
        granted = self._granted.get(sender)
        if granted is not None and goodbye.sequence in granted:
            granted.remove(int(goodbye.sequence))
            if not granted:
                del self._granted[sender]
                del self._view.children[sender]

    # News from below and above.

    def on_hello(self, child: i64, hello: BrokerHello) -> None:
        """A new child names the brokers below it and the topics that it needs."""
        # The child may have asked again meanwhile, and goes by the first answer that it gets. If that came over a
        # link that has broken since, it is no child.
        granted = self._granted.get(child)
        if granted is None or hello.sequence not in granted:
            self._environment.send(child, not_a_child(child, self._view.overlay))
            return
        del self._granted[child]
        for join in hello.joins:
            self._events.handle_join(child, join)
        parents = {int(child): int(self._view.me), **hello.parents}
        self._unready[child] = Attached(parents, hello.overlay, hello.council, hello.epoch)

    def on_attached(self, child: i64, attached: Attached) -> None:
        """Brokers below a child have found a way to it."""
        below = self._view.children.get(child)
        if below is None:
            return
        below.update(attached.parents)
        self._news.append(attached)
        self.pass_on_news()

    def on_ready(self, child: i64) -> None:
        """A child has sent everything that it had."""
        attached = self._unready.pop(child, None)
        if attached is not None:
            parents = {broker: parent for broker, parent in attached.parents.items() if broker != child}
            self._view.children[child] = parents
            self._news.append(attached)
            self.pass_on_news()

    def pass_on_news(self) -> None:
        """Tell the root which brokers have found a way here, once everything that they had is on its way to it too."""
        if self._events.is_joining():
            return
        view = self._view
        news = self._news
        self._news = []
        if self._must_say_ready:
            # What is said below is said after it.
            self._must_say_ready = False
            self._environment.send(view.parent, Ready(view.me, 0))
        reached = view.reached() if news else {}
        for attached in news:
            view.learn(attached.overlay, attached.council, attached.epoch)
            if view.parent != NO_NODE:
                # Some may be lost again since.
                parents = {broker: reached[broker] for broker in attached.parents if broker in reached}
                news_of_these = Attached(parents, attached.overlay, attached.council, attached.epoch)
                self._environment.send(view.parent, news_of_these)
            elif view.is_root:
                view.is_complete = False
        if news and view.is_root:
            self._events.look_for_missing()
