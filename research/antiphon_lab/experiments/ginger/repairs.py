"""How long a repair of the broker tree takes, as each participating broker sees it.

A :class:`NotingBroker` is an ordinary broker that records the times of its events. A repair begins for it when it is
told that its parent, or a child, has failed. For an orphan it continues in *rounds*: it asks one broker after the
other, each of which grants or refuses, or turns out to have failed too. Two ends are measured:

* ``synchronised``: the orphan has everything that its new parent had when they met: the last message that it had
  missed. The document measures this end (section 5.4.1).
* ``settled``: a new epoch has begun here, after which total publications are completed again. For a broker that lost a
  child and not its parent this is the only end.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.fabrics.tree.broker import TreeBroker
from antiphon.fabrics.tree.messages import Frontier, Item, JoinResponse, ParentResponse
from antiphon.fabrics.tree.options import TreeOptions
from antiphon.fabrics.tree.topology import Overlay
from antiphon.kernel.message import ProtocolMessage
from antiphon.kernel.process import Environment
from antiphon_lab.experiments.ginger.bank_service import BankRun


@dataclass
class Repair:
    """One repair at one broker; times are in ticks. ``rounds`` is 0 for a broker that kept its parent."""

    broker: int
    is_orphan: bool
    begun: int
    rounds: int = 0
    refusals: int = 0
    missed: int = 0
    """Messages that came from the new parent and were new here, until both had the same."""
    synchronised: int | None = None
    settled: int | None = None

    @property
    def failed_candidates(self) -> int:
        """Rounds that ended because the asked broker had failed, or did not answer."""
        return self.rounds - self.refusals - 1 if self.is_orphan and self.rounds else 0


class NotingBroker(TreeBroker):
    """Notes its repairs."""

    def __init__(self, environment: Environment, options: TreeOptions, overlay: Overlay) -> None:
        super().__init__(environment, options, overlay)
        self.repairs: list[Repair] = []
        self._attempts_before = 0
        # What the new parent had of each topic when it answered, as far as it has not arrived.
        self._lacking: dict[int, Frontier] = {}

    def peer_lost(self, peer: int) -> None:
        view, now = self.view, int(self.environment.now())
        if peer == view.parent:
            self.repairs.append(Repair(int(self.me), True, now))
            self._attempts_before = int(self.search.attempt)
            self._lacking = {}
        elif peer in view.children and not any(repair.settled is None for repair in self.repairs):
            self.repairs.append(Repair(int(self.me), False, now))
        epoch = view.epoch
        super().peer_lost(peer)
        self._note_epoch(epoch)

    def expire(self, name: int) -> None:
        epoch = self.view.epoch
        super().expire(name)
        self._note_epoch(epoch)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        epoch = self.view.epoch
        search = self._unfinished_search()
        if search is None:
            super().receive(sender, message)
        else:
            self._receive_searching(search, sender, message)
        self._note_epoch(epoch)

    def _receive_searching(self, search: Repair, sender: int, message: ProtocolMessage) -> None:
        if isinstance(message, ParentResponse):
            is_mine = message.source == self.me and message.sequence > self._attempts_before
            search.refusals += is_mine and not message.is_granted
        elif isinstance(message, Item) and sender == self.view.parent:
            topic = self.topics.get(message.topic)
            search.missed += topic is not None and topic.is_carried and topic.is_new(message)
        super().receive(sender, message)
        if sender == self.view.parent:
            if isinstance(message, JoinResponse):
                self._lacking[int(message.topic)] = dict(message.frontier or {})
            self._look_for_the_end(search)

    def _unfinished_search(self) -> Repair | None:
        """The repair in which this broker has not got everything yet."""
        if self.repairs and self.repairs[-1].is_orphan and self.repairs[-1].synchronised is None:
            return self.repairs[-1]
        return None

    def _look_for_the_end(self, search: Repair) -> None:
        search.rounds = int(self.search.attempt) - self._attempts_before
        if not self._lacking or self.streams.is_joining():
            return
        for name, frontier in self._lacking.items():
            got = self.topics.of(name).frontier
            if any(got.get(origin, 0) < number for origin, number in frontier.items()):
                return
        search.synchronised = int(self.environment.now()) - search.begun

    def _note_epoch(self, before: int) -> None:
        """A repair ends with the next epoch."""
        for repair in self.repairs:
            if repair.settled is None and self.view.epoch != before:
                repair.settled = int(self.environment.now()) - repair.begun


def repairs_in(run: BankRun) -> list[Repair]:
    """All repairs at the brokers that are left, by broker."""
    found: list[Repair] = []
    for process in run.processes():
        assert isinstance(process, NotingBroker), "the run was made of brokers that note their repairs"
        found += process.repairs
    return found
