"""A universe on disk: a directory that people can look into.

``subscriptions`` has Parquet files with one row per subscription, ``process`` and ``topic``, which are numbers from 0.
``universe.json`` has the number of each and their origin. A universe that was made from raw data has
``processes`` and ``topics`` too: for every number the name that it had there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from antiphon.kernel.errors import PeerError, UsageError

ABOUT = "universe.json"
SUBSCRIPTIONS = "subscriptions"
PROCESSES = "processes"
TOPICS = "topics"


class Candidate(msgspec.Struct, frozen=True):
    """One of the universes from which the median was taken."""

    topics: int
    processes: int

    @property
    def ratio(self) -> float:
        """Topics per process."""
        return self.topics / self.processes if self.processes else 0.0


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of a universe."""

    source: str
    """Where it comes from, in words."""
    processes: int
    topics: int
    subscriptions: int
    parameters: dict[str, object] = {}
    """The parameters that make the same universe again."""
    candidates: list[Candidate] = []


def write_about(directory: Path, about: About) -> None:
    """Write it last: a directory without it is not a whole universe."""
    (directory / ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n")


def read_about(directory: Path) -> About:
    """The description of a directory; refuses one without a universe."""
    try:
        return msgspec.json.decode((directory / ABOUT).read_bytes(), type=About)
    except FileNotFoundError as error:
        raise UsageError(
            f"{directory} is no universe: there is no {ABOUT} in it; make one with `antiphon universe make` or "
            "`antiphon universe generate`"
        ) from error
    except NotADirectoryError as error:
        raise UsageError(f"{directory} is a file; a universe is a directory with {ABOUT} in it") from error
    except (OSError, msgspec.DecodeError) as error:
        raise PeerError(f"{directory / ABOUT} cannot be read: {error}; make the universe again") from error
