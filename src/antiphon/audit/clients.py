"""The judge of clients: what they were promised when they publish and subscribe through nodes that come and go.

It is told what applications ask for, what is accepted and refused, what subscriptions show and where a gap is told, and
knows nothing of the code behind it. The judge checks:

* ``duplicates``: a subscription shows a message at most once, and only messages that somebody asked for.
* ``fifo``: the ordered messages of one client are shown in the order in which it asked for them.
* ``causal``: a message is not shown before one that its client had seen, or had asked for, when it asked for it.
* ``total order``: two total messages are shown in the same order by all subscriptions that show both.
* ``lost``: an accepted message is shown by every subscription that was effective when it was asked for, unless the
  subscription was told of a gap since.
* ``exactly once``: the log of a node holds the messages of a writer once, in order and, within a series, without gaps.
* ``stuck``: in the end every message is accepted or refused, and every subscription is effective.
* ``error``: nothing is raised.

Where nodes pass over what comes too late for its place (``may_pass_over``, in gossip), a total message that a client
handed in at two nodes has two places, one for each copy. A node that passes over the first copy reports a gap, and
shows the message at the place of the second one (``docs/guarantees.md``, clients that change their node). So between
two subscriptions that were shown it as different publications, and of which one was told of a gap since it was asked
for, it has no order with messages of others.

Messages of an exactly-once writer are promised less (``docs/spark.md``). A series that was written again may come to
some nodes late, so its messages have no order with those of others. A node that others do not reach is not waited for,
so where that may be (``nodes_may_be_away``), messages of writers may be missing there.
"""

from __future__ import annotations

from collections.abc import Iterable

DUPLICATES = "duplicates"
FIFO = "fifo"
CAUSAL = "causal"
TOTAL = "total order"
LOST = "lost"
WRITTEN = "exactly once"
STUCK = "stuck"
ERROR = "error"
KINDS = (ERROR, DUPLICATES, FIFO, CAUSAL, TOTAL, LOST, WRITTEN, STUCK)


class ClientPublication:
    """A message, as its application knows it."""

    def __init__(self, client: int, place: int, order: str, past: frozenset[str], at_us: int) -> None:
        self.client = client
        self.place = place
        self.order = order
        self.past = past
        self.at_us = at_us
        self.is_accepted = False
        self.accepted_at_us = 0
        self.is_refused = False


class SubscriptionRecord:
    """The messages that one subscription has shown."""

    def __init__(self) -> None:
        self.ready_at_us: int | None = None
        self.gap_at_us = -1
        self.shown: dict[str, int] = {}
        # By message, the node that published what was shown, and the number there.
        self.publications: dict[str, tuple[int, int] | None] = {}


class ClientJudge:
    """Judges one run. A client has one subscription; clients that gave up are owed nothing."""

    def __init__(self) -> None:
        self._asked: dict[str, ClientPublication] = {}
        self._heard: dict[int, SubscriptionRecord] = {}
        self._counts: dict[int, int] = {}
        self._given_up: set[int] = set()
        self._writers: set[int] = set()
        self._written_again: set[str] = set()
        self.nodes_may_be_away = False
        self.may_pass_over = False
        self.violations: dict[str, int] = {}
        self.examples: list[str] = []
        self.deliveries = 0
        self.gaps = 0
        self.moves = 0

    def violation(self, kind: str, about: str) -> None:
        """A promise is broken."""
        self.violations[kind] = self.violations.get(kind, 0) + 1
        if len(self.examples) < 5:
            self.examples.append(f"{kind}: {about}")

    @property
    def asked_for(self) -> int:
        """How many messages applications have asked for."""
        return len(self._asked)

    # What happens.

    def asked(self, client: int, name: str, order: str, at_us: int) -> None:
        """An application asks for a message."""
        place = self._counts[client] = self._counts.get(client, 0) + 1
        heard = self._heard.get(client)
        past = frozenset() if heard is None else frozenset(heard.shown)
        self._asked[name] = ClientPublication(client, place, order, past, at_us)

    def accepted(self, name: str, at_us: int = 0) -> None:
        """A message is accepted."""
        self._asked[name].is_accepted = True
        self._asked[name].accepted_at_us = at_us

    def refused(self, name: str) -> None:
        """A message is refused."""
        self._asked[name].is_refused = True

    def ready(self, client: int, at_us: int) -> None:
        """The subscription of a client is effective."""
        heard = self._heard.setdefault(client, SubscriptionRecord())
        if heard.ready_at_us is None:
            heard.ready_at_us = at_us

    def missed(self, client: int, at_us: int) -> None:
        """The subscription of a client is told of a gap."""
        self.gaps += 1
        self._heard.setdefault(client, SubscriptionRecord()).gap_at_us = at_us

    def writes(self, writer: int) -> None:
        """The messages of this client are those of an exactly-once writer."""
        self._writers.add(writer)

    def written_again(self, names: Iterable[str]) -> None:
        """A writer begins again with messages that some nodes may have shown."""
        self._written_again.update(names)

    def gave_up(self, client: int) -> None:
        """A client has found no node for so long that it has ended."""
        self._given_up.add(client)

    def shown(self, client: int, name: str, publication: tuple[int, int] | None = None) -> None:
        """The subscription of a client shows a message, as this publication of a node if that is known."""
        self.deliveries += 1
        heard = self._heard.setdefault(client, SubscriptionRecord())
        asked = self._asked.get(name)
        if asked is None or name in heard.shown:
            self.violation(DUPLICATES, f"client {client} was shown {name} twice, or nobody has asked for it")
            return
        heard.publications[name] = publication
        for other in heard.shown:
            self._compare(client, name, asked, other, self._asked[other])
        heard.shown[name] = len(heard.shown)

    def _compare(
        self, client: int, name: str, asked: ClientPublication, other: str, earlier: ClientPublication
    ) -> None:
        """``other`` was shown before ``name``; it must not follow it."""
        if earlier.order == "none" or asked.order == "none":
            return
        if earlier.client == asked.client and earlier.place > asked.place:
            self.violation(FIFO, f"client {client} was shown {other} before {name}")
        elif name in self._written_again:
            return
        elif (
            earlier.order != "fifo" and name in earlier.past and not self._has_two_places(name, client, earlier.client)
        ):
            self.violation(CAUSAL, f"client {client} was shown {other} before {name}, which it follows")

    def _has_two_places(self, name: str, one: int, other: int) -> bool:
        """Whether two clients were shown different copies of a total message, and one of them was told of a gap."""
        asked, heard = self._asked[name], (self._heard[one], self._heard[other])
        first, second = (each.publications[name] for each in heard)
        has_gap = max(each.gap_at_us for each in heard) > asked.at_us
        return self.may_pass_over and asked.order == "total" and first != second and has_gap

    def log_holds(self, node: str, names: Iterable[str]) -> None:
        """The log of a node holds these messages of writers, each named by its writer, its series and its place."""
        last: dict[str, tuple[int, int]] = {}
        for name in names:
            writer, series, place = name.rsplit(".", 2)
            before = last.get(writer, (0, 0))
            here = last[writer] = (int(series), int(place))
            if here not in ((before[0], before[1] + 1), (max(here[0], before[0] + 1), 1)):
                self.violation(
                    WRITTEN, f"the log of {node} holds {name} behind place {before[1]} of series {before[0]}"
                )

    # The verdict.

    def judge(self, effective: Iterable[int]) -> None:
        """Everything is over; the subscriptions of these clients are effective."""
        effective = set(effective)
        for client, heard in self._heard.items():
            if client not in self._given_up and client not in effective:
                self.violation(STUCK, f"the subscription of client {client} is not effective")
            if client in effective and heard.ready_at_us is not None:
                self._look_for_lost(client, heard)
        for name in self.unanswered():
            client = self._asked[name].client
            self.violation(STUCK, f"{name} of client {client} is neither accepted nor refused")
        self._look_at_total()

    def waits_us(self, ends_us: Iterable[int]) -> list[int]:
        """How long each message of a client waited until it was accepted, without faults that ended at these times."""
        ends_us = sorted(ends_us)
        waits: list[int] = []
        for asked in self._asked.values():
            if asked.is_accepted and asked.client not in self._writers:
                before = [end_us for end_us in ends_us if end_us <= asked.accepted_at_us]
                waits.append(asked.accepted_at_us - max([asked.at_us, *before[-1:]]))
        return waits

    def unanswered(self) -> list[str]:
        """The messages that are neither accepted nor refused; clients that gave up are owed no answer."""
        waiting = [name for name, asked in self._asked.items() if not asked.is_accepted and not asked.is_refused]
        return [name for name in waiting if self._asked[name].client not in self._given_up]

    def _look_for_lost(self, client: int, heard: SubscriptionRecord) -> None:
        since_us = max(heard.ready_at_us or 0, heard.gap_at_us)
        for name, asked in self._asked.items():
            is_owed = asked.is_accepted and asked.at_us > since_us and asked.client not in self._given_up
            is_owed = is_owed and not (self.nodes_may_be_away and asked.client in self._writers)
            if is_owed and name not in heard.shown:
                self.violation(LOST, f"client {client} was never shown {name}, accepted for client {asked.client}")

    def _look_at_total(self) -> None:
        clients = list(self._heard)
        for index, one in enumerate(clients):
            places = {
                name: place
                for name, place in self._heard[one].shown.items()
                if self._asked[name].order == "total" and name not in self._written_again
            }
            for other in clients[:index]:
                names = [name for name in self._heard[other].shown if name in places]
                common = [places[name] for name in names if not self._has_two_places(name, one, other)]
                if common != sorted(common):
                    self.violation(TOTAL, "two clients were shown total messages in different orders")
