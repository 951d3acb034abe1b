"""Traces of availability: when hosts are up. Read from files, or drawn like that of Overnet.

The thesis of M. Matos (section 3.3.6) replays a trace of Overnet by Bhagwan, Savage and Voelker (2003), which it does
not include. :func:`overnet_like` draws one with the properties that their paper reports: hosts join and leave about
three times a day each, are up for a third to a half of the time, stay for times that vary widely, and more of them are
up in the evening. :func:`read_trace` takes a real one.

In a file each line is about a host: its name, then the seconds at which its sessions begin and end, in pairs. Several
lines may be about one host. Separators are blanks, tabs, commas or semicolons; text after ``#`` is a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gamma, pi, sin
from pathlib import Path

import numpy as np

from antiphon.kernel.errors import PeerError, UsageError

DAY_SECONDS = 86_400.0
CYCLES_PER_DAY = 3.0
"""So often a host comes and goes: about six changes a day."""
MEAN_AVAILABILITY, AVAILABILITY_CONCENTRATION = 0.4, 4.0
"""How long hosts are up differs between them: a beta distribution."""
SESSION_SHAPE = 0.5
"""Lengths of sessions are Weibull with this shape: most are short, some very long."""
DAILY_SWING = 0.3
"""By how much of their length absences are shorter or longer by the time of the day."""
BURN_IN_DAYS = 10.0
"""So long before its start a trace is drawn, to begin in the middle of things."""
TRACE_STREAM = 151

SEPARATORS = re.compile(r"[\s,;]+")
Session = tuple[float, float]


@dataclass(frozen=True)
class Trace:
    """For each host the seconds at which its sessions begin and end, ascending; the trace begins at 0."""

    sessions: tuple[tuple[Session, ...], ...]

    @property
    def hosts(self) -> int:
        """How many there are."""
        return len(self.sessions)

    def up_at(self, second: float) -> list[int]:
        """The hosts that are up."""
        return [
            host for host, sessions in enumerate(self.sessions) if any(begin <= second < end for begin, end in sessions)
        ]

    def resampled(self, hosts: int, seed: int) -> Trace:
        """A number of hosts, drawn from these with repetition."""
        random = np.random.default_rng([TRACE_STREAM, seed])
        return Trace(tuple(self.sessions[place] for place in random.integers(0, self.hosts, hosts).tolist()))

    def changes(self, seconds_per_cycle: float, cycles: int) -> list[tuple[list[int], list[int]]]:
        """For each cycle the hosts that left by its end, and those that joined; a host that does both within a cycle
        does neither.
        """
        up = set(self.up_at(0.0))
        found = []
        for cycle in range(1, cycles + 1):
            now = set(self.up_at(cycle * seconds_per_cycle))
            found.append((sorted(up - now), sorted(now - up)))
            up = now
        return found


def overnet_like(hosts: int, hours: float, seed: int) -> Trace:
    """A trace that begins at a random moment of a long one."""
    random = np.random.default_rng([TRACE_STREAM, seed, hosts])
    alpha = MEAN_AVAILABILITY * AVAILABILITY_CONCENTRATION
    shares = random.beta(alpha, AVAILABILITY_CONCENTRATION - alpha, hosts)
    return Trace(tuple(drawn_sessions(random, float(share), hours * 3600.0) for share in shares))


def drawn_sessions(random: np.random.Generator, share: float, seconds: float) -> tuple[Session, ...]:
    """The sessions of a host that is up for a share of the time."""
    cycle = DAY_SECONDS / CYCLES_PER_DAY
    # The mean of a Weibull distribution with scale 1.
    unit_mean = gamma(1.0 + 1.0 / SESSION_SHAPE)
    now = -BURN_IN_DAYS * DAY_SECONDS
    sessions: list[Session] = []
    while now < seconds:
        away = (1.0 - share) * cycle * float(random.weibull(SESSION_SHAPE)) / unit_mean
        # In the evening of the trace's first day absences are shortest.
        now += max(1.0, away * (1.0 - DAILY_SWING * sin(2.0 * pi * now / DAY_SECONDS)))
        stays = max(1.0, share * cycle * float(random.weibull(SESSION_SHAPE)) / unit_mean)
        if now + stays > 0 and now < seconds:
            sessions.append((max(0.0, now), min(seconds, now + stays)))
        now += stays
    return tuple(sessions)


def read_trace(path: Path) -> Trace:
    """A trace from a file; times are counted from its first."""
    by_host: dict[str, list[Session]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PeerError(f"{path} cannot be read: {error}; name a text file with sessions of hosts") from error
    for number, line in enumerate(lines, 1):
        words = SEPARATORS.split(line.partition("#")[0].strip())
        if words == [""]:
            continue
        by_host.setdefault(words[0], []).extend(sessions_in(words[1:], f"{path}, line {number}"))
    if not by_host:
        raise UsageError(f"{path} names no host; each line is a host and when its sessions begin and end")
    first = min(begin for sessions in by_host.values() for begin, _ in sessions)
    return Trace(
        tuple(tuple(sorted((begin - first, end - first) for begin, end in sessions)) for sessions in by_host.values())
    )


def sessions_in(words: list[str], place: str) -> list[Session]:
    """Pairs of times."""
    try:
        times = [float(word) for word in words]
    except ValueError as error:
        raise UsageError(f"{place}: {error}; after the host there are only seconds") from error
    if len(times) == 0 or len(times) % 2:
        raise UsageError(f"{place}: {len(times)} times are no pairs of a beginning and an end")
    sessions = list(zip(times[::2], times[1::2], strict=True))
    for begin, end in sessions:
        if end < begin:
            raise UsageError(f"{place}: a session begins at {begin:g} and ends at {end:g}, before that")
    return sessions
