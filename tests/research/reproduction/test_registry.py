"""Experiments by name."""

from __future__ import annotations

import re

import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.reproduction.registry import EXPERIMENTS, find


def names(*wanted: str) -> list[str]:
    return [experiment.name for experiment in find(list(wanted))]


def test_names_are_systems_and_figures_and_unique() -> None:
    everything = names()
    assert {"vcube/fig-2.9", "vcube-ps/fig-5.8a", "vcube-ps/fig-5.8b", "vcube-ps/table-5.1"} <= set(everything)
    assert len(set(everything)) == len(everything) == len(EXPERIMENTS)
    assert all(re.fullmatch(r"[a-z-]+/[a-z0-9.-]+", name) for name in everything)


def test_a_system_stands_for_all_of_its_experiments() -> None:
    assert names("vcube") == ["vcube/fig-2.9", "vcube/diagnosis"]
    assert names("vcube-ps") == [name for name in names() if name.startswith("vcube-ps/")]
    assert names("vcube-ps/table-5.1", "vcube", "vcube/fig-2.9") == [*names("vcube"), "vcube-ps/table-5.1"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("vcube-ps/fig-5.8", "did you mean 'vcube-ps/fig-5.8"),
        ("vcube-ps/table-51", "did you mean 'vcube-ps/table-5.1'?"),
        ("vcub", "did you mean 'vcube'?"),
        ("zzz", "no experiment 'zzz'; `antiphon reproduce --list` shows them all"),
    ],
)
def test_an_unknown_name_is_met_with_a_guess(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(hint)):
        find([name])
