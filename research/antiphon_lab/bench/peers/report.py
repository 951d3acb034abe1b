"""Figures from counts: deliveries per second, lost messages, latencies, and ratios between contenders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

import antiphon
from antiphon_lab.bench.peers.contender import Contender
from antiphon_lab.bench.peers.registry import US
from antiphon_lab.bench.peers.workload import Workload
from antiphon_lab.reproduction.machine import Machine


class RoundFigures(msgspec.Struct, frozen=True):
    """One round: from the first publication to the last delivery."""

    published: int
    delivered: int
    lost: int
    """Deliveries that were due and did not happen; negative if messages arrived twice."""
    seconds: float
    delivered_per_second: float
    processor_microseconds_per_delivery: float
    """The processor time of all processes and the server; it depends little on other load of the machine."""

    @staticmethod
    def of_counts(
        published: int, subscribers: int, delivered: int, seconds: float, processor_seconds: float
    ) -> RoundFigures:
        """Figures of a round in which every subscriber should have received every message."""
        return RoundFigures(
            published=published,
            delivered=delivered,
            lost=published * subscribers - delivered,
            seconds=seconds,
            delivered_per_second=delivered / seconds,
            processor_microseconds_per_delivery=processor_seconds * 1e6 / max(1, delivered),
        )


class Throughput(msgspec.Struct, frozen=True):
    """Full speed, over several rounds."""

    delivered_per_second: float
    """The median of the rounds."""
    best_delivered_per_second: float
    processor_microseconds_per_delivery: float
    lost: int
    rounds: list[RoundFigures]


class Latency(msgspec.Struct, frozen=True):
    """From the call of ``publish`` to the call of the subscriber, at a steady rate."""

    messages_per_second: float
    deliveries: int
    lost: int
    p50_microseconds: float
    p99_microseconds: float
    longest_microseconds: float


class Figures(msgspec.Struct, frozen=True, omit_defaults=True):
    """One contender under one workload."""

    contender: str
    workload: str
    payload_bytes: int
    load_average: float
    """The load of the machine before the run."""
    throughput: Throughput | None = None
    latency: Latency | None = None
    error: str = ""

    @staticmethod
    def of(name: str, workload: Workload, load: float, throughput: Throughput, latency: Latency | None) -> Figures:
        """Figures of a run that went well."""
        return Figures(name, workload.name, workload.payload_bytes, load, throughput, latency)

    @staticmethod
    def failed(name: str, workload: Workload, load: float, error: str) -> Figures:
        """The figures of a failed run."""
        return Figures(name, workload.name, workload.payload_bytes, load, error=error)


class Ratio(msgspec.Struct, frozen=True, omit_defaults=True):
    """Antiphon divided by a rival: more is better for speed, less for latency."""

    rival: str
    workload: str
    payload_bytes: int
    delivered_per_second: float
    p50_latency: float | None = None
    p99_latency: float | None = None


class Participant(msgspec.Struct, frozen=True):
    """A contender that took part, its version, and how it was used."""

    name: str
    title: str
    client: str
    server: str
    published_means: str
    settings: str

    @staticmethod
    def of(contender: Contender) -> Participant:
        """The description of a contender."""
        return Participant(
            name=contender.name,
            title=contender.title,
            client=contender.client_version(),
            server=contender.server_version(),
            published_means=contender.published,
            settings=contender.settings,
        )


class Absent(msgspec.Struct, frozen=True):
    """A contender that did not take part, and how to install it."""

    name: str
    reason: str


class PeerReport(msgspec.Struct, frozen=True):
    """All figures of one invocation."""

    antiphon: str
    machine: Machine
    contenders: list[Participant]
    absent: list[Absent]
    figures: list[Figures]
    ratios: list[Ratio]

    @staticmethod
    def of(
        machine: Machine, contenders: Iterable[Contender], absent: list[Absent], figures: list[Figures]
    ) -> PeerReport:
        """Combine all figures."""
        participants = [Participant.of(contender) for contender in contenders]
        return PeerReport(antiphon.__version__, machine, participants, absent, figures, ratios_of(figures))


def throughput_of(rounds: Sequence[RoundFigures]) -> Throughput:
    """The median of several rounds, and the best."""
    speeds = [one.delivered_per_second for one in rounds]
    return Throughput(
        delivered_per_second=median(speeds),
        best_delivered_per_second=max(speeds),
        processor_microseconds_per_delivery=median(one.processor_microseconds_per_delivery for one in rounds),
        lost=sum(one.lost for one in rounds),
        rounds=list(rounds),
    )


def latency_of(rate: float, figures: RoundFigures, nanoseconds: list[int]) -> Latency:
    """Percentiles over all deliveries of all subscribers."""
    ascending = sorted(nanoseconds)
    return Latency(
        messages_per_second=rate,
        deliveries=len(ascending),
        lost=figures.lost,
        p50_microseconds=percentile(ascending, 50) / 1e3,
        p99_microseconds=percentile(ascending, 99) / 1e3,
        longest_microseconds=percentile(ascending, 100) / 1e3,
    )


def percentile(ascending: Sequence[int], percent: int) -> float:
    """The smallest value that is at least as large as so many percent of all; NaN if there is none."""
    if not ascending:
        return float("nan")
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]


def ratios_of(figures: Iterable[Figures]) -> list[Ratio]:
    """Antiphon against each rival under the same workload; none where one of the two has no figures."""
    by_name = {(one.contender, one.workload, one.payload_bytes): one for one in figures}
    found = []
    for (name, workload, payload_bytes), theirs in by_name.items():
        ours = by_name.get((US, workload, payload_bytes))
        if name == US or ours is None or ours.throughput is None or theirs.throughput is None:
            continue
        ratio = Ratio(
            rival=name,
            workload=workload,
            payload_bytes=payload_bytes,
            delivered_per_second=ours.throughput.delivered_per_second / theirs.throughput.delivered_per_second,
        )
        if ours.latency is not None and theirs.latency is not None:
            ratio = msgspec.structs.replace(
                ratio,
                p50_latency=ours.latency.p50_microseconds / theirs.latency.p50_microseconds,
                p99_latency=ours.latency.p99_microseconds / theirs.latency.p99_microseconds,
            )
        found.append(ratio)
    return found
