"""Measurements of every experiment that is held to a document, recorded once, for tests of how they are judged.

``recorded.json.xz`` has one repetition of each case of the default plans. After a change of what is measured, make it
anew from the output of ``antiphon reproduce``::

    antiphon reproduce --all --repetitions 1 --out DIR
    python -m tests.research.reproduction.recording DIR
"""

from __future__ import annotations

import lzma
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from antiphon_lab.reproduction.experiment import Experiment, Results, repetition_seed
from antiphon_lab.reproduction.measurements import Measured, array_from, identity_of, measurement_of, value_type
from antiphon_lab.reproduction.registry import EXPERIMENTS

RECORDED = Path(__file__).with_name("recorded.json.xz")
OWN = (
    "aggregation/better",
    "brisa/reuse",
    "brisa/several-trees",
    "epto/better",
    "epto/corrections",
    "ginger/cost",
    "ginger/parents",
    "gossip/overlays",
    "places/aggregation",
    "places/brokers",
    "places/cells",
    "places/gossip",
    "places/trees",
    "stan/brisa",
    "stan/total-order",
    "vcube-ps/better",
)
"""Experiments of our own, which hold nothing to a document."""

HELD: list[Experiment[Any, Any]] = [experiment for experiment in EXPERIMENTS if experiment.name not in OWN]

Recorded = dict[str, dict[str, Any]]
"""By measuring function and by case."""


@cache
def recorded() -> Recorded:
    """The file."""
    return msgspec.json.decode(lzma.decompress(RECORDED.read_bytes()), type=Recorded)


def value_of(experiment: Experiment[Any, Any], case: object) -> Any:
    """The recorded measurement of a case, as the measuring function returned it."""
    name, parameters, _ = identity_of(experiment.measure, case, 0)
    written = recorded()[name][parameters]
    return msgspec.convert(written, value_type(experiment.measure), dec_hook=array_from)


def values_of(experiment: Experiment[Any, Any]) -> list[tuple[Any, Any]]:
    """The cases of the default plan with their measurements."""
    return [(case, value_of(experiment, case)) for case in experiment.cases(experiment.default)]


def repeated(experiment: Experiment[Any, Any], values: list[tuple[Any, Any]]) -> Results[Any, Any]:
    """Results of the default plan as if every repetition had measured the same."""
    results: Results[Any, Any] = Results()
    for case, value in dict(values).items():
        for _ in range(experiment.default.repetitions_of(case.nodes)):
            results.add(case, value)
    return results


def collected(outs: list[Path]) -> Recorded:
    """The first repetition of every case, from the first of the directories that has it."""
    found: Recorded = {}
    for experiment in HELD:
        for case in experiment.cases(experiment.default):
            place = measurement_of(0, experiment.measure, case, repetition_seed(1, 0), 1).file
            written = next(out / place for out in outs if (out / place).exists())
            name, parameters, _ = identity_of(experiment.measure, case, 0)
            value = msgspec.json.decode(written.read_bytes(), type=Measured).value
            found.setdefault(name, {})[parameters] = value
    return found


if __name__ == "__main__":
    encoded = msgspec.json.encode(collected([Path(name) for name in sys.argv[1:]]))
    RECORDED.write_bytes(lzma.compress(encoded, preset=9 | lzma.PRESET_EXTREME))
