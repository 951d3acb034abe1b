"""Scenarios written as files: they read back as what they were."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.simulator.scenario.file import load_scenario, parse_scenario
from antiphon.simulator.scenario.scenario import (
    ConstantLaw,
    Fault,
    LimitsTable,
    LinkLaw,
    MatrixLaw,
    NetworkTable,
    NormalLaw,
    OnceWorkload,
    PartitionFault,
    PauseFault,
    PublishTable,
    RateWorkload,
    ResumeFault,
    Scenario,
    SubscribeTable,
    TopicsTable,
    TraceTable,
)
from antiphon.simulator.scenario.writer import scenario_text

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "scenarios").glob("*.toml"))

NODES = 12
TICKS = st.integers(0, 5000)
SETS = st.lists(st.integers(0, NODES - 1), min_size=1, max_size=4, unique=True) | st.sampled_from(["0-3", "2, 5-7"])
PLAIN_LAWS = st.builds(ConstantLaw, ticks=TICKS) | st.builds(
    NormalLaw, mean=st.floats(1, 1000), deviation=st.floats(0.01, 100)
)
LAWS = st.one_of(
    PLAIN_LAWS,
    st.builds(LinkLaw, of=PLAIN_LAWS, symmetric=st.booleans()),
    st.integers(1, 3).flatmap(
        lambda places: st.builds(
            MatrixLaw,
            rows=st.lists(st.lists(TICKS, min_size=places, max_size=places), min_size=places, max_size=places),
        )
    ),
)
NETWORKS = st.builds(
    NetworkTable,
    delay=LAWS,
    transmission=TICKS,
    charge_control=st.booleans(),
    reordering=st.floats(0, 1),
    reordering_window=st.integers(1, 9),
)
WORKLOADS = (
    st.none()
    | st.builds(OnceWorkload, share=st.floats(0.01, 1), window=TICKS, topic=st.sampled_from([0, "any"]))
    | st.builds(RateWorkload, mean_gap=st.floats(0.5, 100), count=st.integers(1, 99), until=st.integers(5001, 9999))
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Any scenario that can be run, with topics or without."""
    common: dict[str, Any] = {
        "name": draw(st.text(max_size=8)),
        "seed": draw(st.integers(0, 2**63 - 1)),
        "nodes": NODES,
        "network": draw(NETWORKS),
        "workload": draw(WORKLOADS),
        "limits": LimitsTable(time=draw(st.integers(5000, 10**15))),
        "trace": TraceTable(level=draw(st.sampled_from(["counts", "deliveries", "everything"]))),
    }
    payload = draw(st.text(max_size=5))
    if draw(st.booleans()):
        groups = [draw(SETS)]
        faults: list[Fault] = [
            PauseFault(at=1, nodes=[3, 5]),
            ResumeFault(at=4, nodes=[5, 3]),
            PartitionFault(at=2, groups=groups),
        ]
        workload = common.pop("workload")
        return Scenario(
            **common,
            workload=OnceWorkload() if isinstance(workload, OnceWorkload) else workload,
            faults=faults,
            publications=[PublishTable(at=draw(st.integers(5, 5000)), node=3, payload=payload)],
        )
    return vcube_ps(draw, common, payload)


def vcube_ps(draw: st.DrawFn, common: dict[str, Any], payload: str) -> Scenario:
    """A scenario with topics: node 0 is a member of topic 0, changes its mind and publishes."""
    members = draw(st.none() | st.lists(SETS, max_size=2))
    left = draw(TICKS)
    back = draw(st.integers(left, 5000))
    return Scenario(
        **common,
        protocol="vcube-ps",
        protocol_options=draw(st.sampled_from([{}, {"window": 3, "largest_first": False}])),
        order=draw(st.sampled_from(["none", "fifo", "causal"])),
        topics=None if members is None else TopicsTable(count=len(members) + 1, members=["0-3", *members]),
        unsubscriptions=[SubscribeTable(at=left, node=0)],
        subscriptions=[SubscribeTable(at=back, nodes=[0])],
        publications=[PublishTable(at=back, node=0, payload=payload)],
        faults=[PauseFault(at=1, node=11)],
    )


@given(scenario=scenarios())
@settings(max_examples=200, deadline=None)
def test_a_scenario_reads_back_as_it_was(scenario: Scenario) -> None:
    assert parse_scenario(scenario_text(scenario, "two lines\nof remarks")) == scenario


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_read_back_as_they_were(path: Path) -> None:
    scenario = load_scenario(path)
    assert parse_scenario(scenario_text(scenario)) == scenario


def test_only_what_is_special_is_written() -> None:
    scenario = Scenario(
        nodes=4,
        protocol="vcube-ps",
        network=NetworkTable(delay=NormalLaw(mean=9, deviation=2.5)),
        topics=TopicsTable(count=2, members=["0-1", []]),
        subscriptions=[SubscribeTable(at=3, node=2)],
        publications=[PublishTable(at=3, node=2, payload='"so"\x7f')],
    )
    assert scenario_text(scenario, "A remark\nof two lines.") == (
        "# A remark\n"
        "# of two lines.\n"
        'protocol = "vcube-ps"\n'
        "nodes = 4\n"
        "\n"
        "[network]\n"
        'delay = { law = "normal", mean = 9, deviation = 2.5 }\n'
        "\n"
        "[topics]\n"
        "count = 2\n"
        'members = ["0-1", []]\n'
        "\n"
        "[[publish]]\n"
        "at = 3\n"
        "node = 2\n"
        'payload = "\\"so\\"\\u007f"\n'
        "\n"
        "[[subscribe]]\n"
        "at = 3\n"
        "node = 2\n"
    )
