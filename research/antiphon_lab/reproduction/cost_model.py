"""Estimates how long a measurement takes, so that the largest are started first.

The file ``cost_model.toml`` has measured times: for every measuring function and kind of case, seconds by number of
nodes. A kind is the text of a case with ``N`` for the number of nodes. Between two sizes, and beyond them, the time is
assumed to grow as a power of the size. ``python -m antiphon_lab.reproduction.cost_model DIR`` makes the file from the
records below DIR.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from antiphon_lab.reproduction.measurements import MEASUREMENTS, Measure, Measured

DATA = "cost_model.toml"
USUAL_POWER = 1.5
"""How time grows with the size where only one size was measured."""
LEAST_POWER, MOST_POWER = 0.0, 2.5
MICROSECONDS_PER_NODE = 1000
"""Where nothing is known."""

Seconds = dict[str, dict[str, dict[str, float]]]
"""By measuring function, kind of case, and number of nodes."""


@cache
def known_seconds() -> Seconds:
    """The measured times."""
    return msgspec.toml.decode(files("antiphon_lab.reproduction").joinpath(DATA).read_bytes(), type=Seconds)


def kind_of(text: str, nodes: int) -> str:
    """The kind of a case, independent of its size."""
    return re.sub(rf"\b{nodes}\b", "N", text, count=1)


def expected_microseconds(measure: Measure, case: Any) -> int:
    """An estimate for one case."""
    kinds = known_seconds().get(f"{measure.__module__}.{measure.__qualname__}")
    nodes = int(case.nodes)
    if not kinds:
        return MICROSECONDS_PER_NODE * nodes
    sizes = kinds.get(kind_of(str(case), nodes))
    # Nothing is known about a new kind but the times of others, and too much is better than too little.
    seconds = at_size(sizes, nodes) if sizes else max(at_size(others, nodes) for others in kinds.values())
    return max(1, int(seconds * 1e6))


def at_size(sizes: dict[str, float], nodes: int) -> float:
    """The seconds of a kind of case at a size, from those at other sizes."""
    known = sorted((int(size), seconds) for size, seconds in sizes.items())
    at = min(max(sum(size <= nodes for size, _ in known), 1), len(known) - 1)
    near, seconds = min(known, key=lambda one: abs(math.log(one[0] / nodes)))
    power = USUAL_POWER
    if at:
        (low, less), (high, more) = known[at - 1], known[at]
        power = min(max(math.log(more / less) / math.log(high / low), LEAST_POWER), MOST_POWER)
    return float(seconds * (nodes / near) ** power)


def collected(out: Path) -> Seconds:
    """The times of the records below a directory: the median processor time over the repetitions."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for path in sorted((out / MEASUREMENTS).rglob("*.json")):
        record = msgspec.json.decode(path.read_bytes(), type=Measured)
        # Every case has a number of nodes; those of Figure 5.11 say only how many are members.
        stated = re.search(r"\b(nodes|members)=(\d+)", record.parameters)
        if stated is None:
            continue
        nodes = int(stated[2]) if stated[1] == "nodes" else 1 << int(stated[2]).bit_length()
        key = (record.measure, kind_of(record.case, nodes), nodes)
        found.setdefault(key, []).append(record.processor_seconds)
    seconds: Seconds = {}
    for (measure, kind, nodes), values in sorted(found.items()):
        seconds.setdefault(measure, {}).setdefault(kind, {})[str(nodes)] = statistics.median(values)
    return seconds


def to_text(seconds: Seconds) -> str:
    """The file."""
    lines = ["# Seconds of the processor per measurement; made by: python -m antiphon_lab.reproduction.cost_model DIR"]
    for measure, kinds in seconds.items():
        lines.append(f'\n["{measure}"]')
        for kind, sizes in kinds.items():
            listed = ", ".join(f'"{nodes}" = {max(spent, 1e-4):.2g}' for nodes, spent in sizes.items())
            lines.append(f'"{kind}" = {{ {listed} }}')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(to_text(collected(Path(sys.argv[1]))))
