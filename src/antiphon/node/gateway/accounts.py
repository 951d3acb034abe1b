"""The accounts of identities at one node: how much each of them uses, compared with its quotas.

Some of this runs for each batch, so it is compiled; :mod:`antiphon.node.quotas` says what quotas there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import nlargest
from typing import Any, Final

from antiphon.node.quotas import Quotas
from antiphon.runtime.errors import QuotaError
from antiphon.streams.retention import UNBOUNDED
from antiphon.transport.turn_share import TurnShare

REQUEST_BYTES_PER_SECOND: Final = float(32 << 20)
"""How many bytes of long requests, beside batches, a node reads for one identity: they take a sixth of a processor."""

COMMANDS_PER_SECOND: Final = 5000.0
COMMAND_BURST_SECONDS: Final = 0.1
"""How many acknowledgements and returns of consumers a node takes from one identity. They wait for the disk in one
line with those of others; an acknowledgement may be of thousands of messages."""

CLIENTS_SHOWN: Final = 100
"""The figures of so many identities are shown, so that a large file of rights makes no metrics without end."""

KEPT_QUOTAS: Final = ("consumers", "histories", "history_bytes")
"""Quotas of what the cluster keeps: it also counts what was made before this node was started."""

TOPICS_RESERVED: Final = 8
"""One part in so many of ``maximum_topics`` is for identities that have begun no more than their share of this part. So
one that begins new topics without end leaves some for the others."""

BURST_SECONDS: Final = 1.0
"""An identity that was quiet may use the rate of so many seconds at once."""


class Rate:
    """A token bucket. It may go below zero; then nothing more fits until it has filled again."""

    def __init__(self, per_second: float, now: float, burst_seconds: float = BURST_SECONDS) -> None:
        self._per_second = per_second
        self._full = per_second * burst_seconds
        self._level = self._full
        self._at = now

    def charge(self, amount: float, now: float) -> bool:
        """So much was used; whether it was more than there is."""
        self._fill(now)
        self._level -= amount
        return self._level < 0.0

    def debt_seconds(self, now: float) -> float:
        """How long until something fits again; 0 if it does now."""
        self._fill(now)
        return max(0.0, -self._level / self._per_second)

    def _fill(self, now: float) -> None:
        self._level = min(self._full, self._level + (now - self._at) * self._per_second)
        self._at = now


class Owners:
    """How many identities of a node have something."""

    def __init__(self) -> None:
        self.of_topics = 0


class Account:
    """The use that one identity makes of a node. It also meters what waits in the identity's subscriptions."""

    def __init__(self, name: str, quotas: Quotas, clock: Callable[[], float], owners: Owners | None = None) -> None:
        self._name = name
        self._clock = clock
        self._owners = Owners() if owners is None else owners
        # How many topics it was the first to use here.
        self.begun_topics = 0
        self.connections = 0
        self.subscriptions = 0
        self.topics: set[str] = set()
        self.memory_bytes = 0
        # Lanes that have begun here; the node may not have delivered anything of them yet.
        self._series: set[tuple[str, int]] = set()
        # What the nodes keep for it, when it last asked for more.
        self._kept: dict[str, int] = dict.fromkeys(KEPT_QUOTAS, 0)
        # How often each quota was at its end.
        self.hits: Counter[str] = Counter()
        self._messages: Rate | None = None
        self._bytes: Rate | None = None
        self.has_rates = False
        """Whether publishing is counted; asked for each batch."""
        self.owes = False
        """Whether it may have used a rate up, so that its next batch waits; asked for each batch, too."""
        self._requests = Rate(REQUEST_BYTES_PER_SECOND, clock())
        self._commands = Rate(COMMANDS_PER_SECOND, clock(), COMMAND_BURST_SECONDS)
        self.turns = TurnShare()
        self.quotas = Quotas()
        self.renew(quotas)

    def renew(self, quotas: Quotas) -> None:
        """The file of rights says something else now; what is used stays used."""
        before, self.quotas = self.quotas, quotas
        now = self._clock()
        if quotas.messages_per_second != before.messages_per_second:
            self._messages = None if quotas.messages_per_second is None else Rate(quotas.messages_per_second, now)
        if quotas.bytes_per_second != before.bytes_per_second:
            self._bytes = None if quotas.bytes_per_second is None else Rate(quotas.bytes_per_second, now)
        self.has_rates = self._messages is not None or self._bytes is not None

    # Counts.

    def connect(self) -> None:
        """One more connection."""
        self._check("connections", self.connections, self.quotas.connections, "close one, or use one for all")
        self.connections += 1

    def subscribe(self, policy: str) -> str:
        """One more subscription that asks for a policy; the policy that it gets."""
        quotas = self.quotas
        if quotas.policy is None and quotas.policies is not None and policy not in quotas.policies:
            self.hits["policies"] += 1
            allowed = " or ".join(map(repr, quotas.policies)) or "none"
            raise QuotaError(f"{self._who} may not ask for the policy {policy!r} (quota policies); choose {allowed}")
        self._check("subscriptions", self.subscriptions, quotas.subscriptions, "close one, or use a pattern")
        self.subscriptions += 1
        return policy if quotas.policy is None else quotas.policy

    def use_topic(self, topic: str) -> None:
        """A topic, perhaps one more."""
        if self.quotas.topics is not None and topic not in self.topics:
            self._check("topics", len(self.topics), self.quotas.topics, "use topics that you have used before")
            self.topics.add(topic)

    def begin_topic(self, known: int, maximum: int) -> None:
        """A topic that this node, which knows so many, does not know yet."""
        if not self._name:
            # Without rights nobody knows which clients belong together.
            return
        reserved = maximum // TOPICS_RESERVED
        if known >= maximum - reserved and self.begun_topics * max(1, self._owners.of_topics) >= reserved:
            self.hits["topics"] += 1
            raise QuotaError(
                f"this node has {known} topics, nearly all that it may (maximum_topics), and {self._who} has begun "
                f"{self.begun_topics} of them: the rest is for others (quota topics); use topics that are known"
            )
        self._owners.of_topics += self.begun_topics == 0
        self.begun_topics += 1

    def use_series(self, topic: str, lane: int, remembered: int) -> None:
        """A lane of a writer that the node does not know yet, beside so many that it remembers for the identity."""
        if self.quotas.series is not None and (topic, lane) not in self._series:
            used = max(remembered, len(self._series))
            self._check("series", used, self.quotas.series, "use writers and lanes that have written before")
            self._series.add((topic, lane))

    def check_kept(self, quota: str, used: int, more: int = 1) -> None:
        """Refuse more of what the nodes of the cluster keep for the identity; it uses so much of it already."""
        most: int | None = getattr(self.quotas, quota)
        self._kept[quota] = used
        if most is not None and used + more > most:
            self.hits[quota] += 1
            wanted = "no bound" if more == UNBOUNDED else f"{more} more"
            raise QuotaError(
                f"{self._who} uses {used} of {most} {quota} of this cluster and asks for {wanted} (quota {quota}); "
                "remove some, or ask for less"
            )

    def _check(self, quota: str, used: int, most: int | None, advice: str) -> None:
        if most is not None and used >= most:
            self.hits[quota] += 1
            raise QuotaError(f"{self._who} uses {used} {quota} of this node, all that it may (quota {quota}); {advice}")

    def used(self) -> dict[str, int]:
        """How much is used of what is counted."""
        return {
            "connections": self.connections,
            "subscriptions": self.subscriptions,
            "topics": len(self.topics),
            "memory": self.memory_bytes,
            "series": len(self._series),
            **self._kept,
        }

    def bounds(self) -> dict[str, int]:
        """How much may be used of that, where there is a bound."""
        return {name: most for name in self.used() if (most := getattr(self.quotas, name)) is not None}

    @property
    def _who(self) -> str:
        return f"client {self._name!r}" if self._name else "a client"

    # Memory.

    def add(self, size_bytes: int) -> None:
        """So much more waits for the identity, or less."""
        self.memory_bytes += size_bytes

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether so much more may wait."""
        most = self.quotas.memory
        return most is None or self.memory_bytes + size_bytes <= most

    def memory_used_up(self, what: str) -> QuotaError:
        """The error for something for which there is no room."""
        self.hits["memory"] += 1
        return QuotaError(
            f"{what}: {self.memory_bytes} bytes wait for {self._who} at this node, nearly all that may (quota memory); "
            "take messages faster, or have fewer subscriptions"
        )

    # Rates.

    def charge_request(self, size: int) -> float:
        """A request that is no batch has come; how long to read nothing more."""
        now = self._clock()
        self._requests.charge(size, now)
        return self._requests.debt_seconds(now)

    def charge_command(self) -> float:
        """A request has come that all replicas of a history write; how long to read nothing more."""
        if not self._name:
            # Without rights nobody knows which clients belong together.
            return 0.0
        now = self._clock()
        self._commands.charge(1, now)
        return self._commands.debt_seconds(now)

    def charge(self, messages: int, size: int) -> None:
        """A batch was published."""
        now = self._clock()
        if self._messages is not None:
            self.owes = self._messages.charge(messages, now) or self.owes
        if self._bytes is not None:
            self.owes = self._bytes.charge(size, now) or self.owes

    def wait_seconds(self) -> float:
        """How long the next batch has to wait."""
        now = self._clock()
        seconds = 0.0
        for quota, rate in (("messages_per_second", self._messages), ("bytes_per_second", self._bytes)):
            debt = 0.0 if rate is None else rate.debt_seconds(now)
            if debt > 0:
                self.hits[quota] += 1
            seconds = max(seconds, debt)
        self.owes = seconds > 0
        return seconds


class Ledger:
    """The accounts of all identities at one node. There are as many as the file of rights has, and one for the rest."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._owners = Owners()

    def account(self, name: str, quotas: Quotas) -> Account:
        """The account of an identity."""
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = Account(name, quotas, self._clock, self._owners)
        elif found.quotas != quotas:
            found.renew(quotas)
        return found

    def figures(self) -> dict[str, dict[str, Any]]:
        """The use of identities with quotas, and how often each quota was at its end: of those that were most often."""
        limited = [(name, account) for name, account in self._accounts.items() if account.quotas != Quotas()]
        if len(limited) > CLIENTS_SHOWN:
            limited = nlargest(CLIENTS_SHOWN, limited, key=lambda each: (each[1].hits.total(), each[1].memory_bytes))
        return {
            name: {**account.used(), "bounds": account.bounds(), "hits": dict(account.hits)}
            for name, account in limited
        }
