"""The published protocol and the rivals of VCube-PS as protocols of scenarios."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.kernel.errors import ScenarioError
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.run import Result, Simulation, run_scenario
from antiphon.simulator.scenario.scenario import (
    NetworkTable,
    NormalLaw,
    OnceWorkload,
    PublishTable,
    Scenario,
    TopicsTable,
)
from antiphon.torture.campaign import run_schedule
from antiphon.torture.schedules.topic_schedule import draw_schedule
from antiphon_lab.protocols.cube.vcube_ps_published import PublishedVCubeOptions, PublishedVCubePs
from antiphon_lab.scenarios.cube import PublishedVCubePsOptions

ONCE = 'nodes = 40\nworkload = { kind = "once" }\n'
PUBLISHED = ONCE + 'protocol = "vcube-ps-published"\n'
SINGLE_ROOT = ONCE + 'order = "none"\nprotocol = "srpt-s"\n'
BROKERS = ONCE + 'order = "none"\nprotocol = "srpt-b"\n'

WRONG = {
    "an order other than causal": (
        PUBLISHED + 'order = "fifo"',
        'a.toml, line 4: order: vcube-ps-published supports the orders causal, not fifo; for example: order = "causal"',
    ),
    "an option of the repaired protocol": (
        PUBLISHED + "[protocol-options]\nwindow = 4",
        "a.toml, line 5: protocol-options.window: there is no such key; the keys here are preset, single_sender, ",
    ),
    "an unknown preset": (
        PUBLISHED + '[protocol-options]\npreset = "printed"',
        "a.toml, line 5: protocol-options.preset: ",
    ),
    "a switch that is no switch": (
        PUBLISHED + "[protocol-options]\nkeeps_tombstones = 1",
        "a.toml, line 5: protocol-options.keeps_tombstones: expected true or false, not 1; for example: "
        "keeps_tombstones = true",
    ),
    "an order where nothing is ordered": (
        ONCE + 'protocol = "srpt-s"',
        'a.toml: order: srpt-s supports the orders none, not causal; for example: order = "none"',
    ),
    "acknowledgements": (
        SINGLE_ROOT + "[protocol-options]\nacknowledge = true",
        "a.toml, line 6: protocol-options.acknowledge: there is no such key; the keys here are roots, largest_first",
    ),
    "brokers without brokers": (
        SINGLE_ROOT + "[protocol-options]\nbrokers = 4",
        "a.toml, line 6: protocol-options.brokers: there is no such key; the keys here are roots, largest_first",
    ),
    "no roots": (
        SINGLE_ROOT + "[protocol-options]\nroots = []",
        "a.toml, line 6: protocol-options.roots: expected at least one node; leave this out to have the roots "
        "scattered",
    ),
    "a root that does not exist": (
        SINGLE_ROOT + "[protocol-options]\nroots = [3, 40]",
        "a.toml, line 6: protocol-options.roots 2: node 40 cannot be a root: it is none of the 40 nodes; choose from "
        "0 to 39",
    ),
    "a root that is no broker": (
        BROKERS + "[protocol-options]\nbrokers = 4\nroots = [4]",
        "a.toml, line 7: protocol-options.roots 1: node 4 cannot be a root: it is none of the 4 brokers; choose from "
        "0 to 3",
    ),
    "brokers that are no power of two": (
        BROKERS + "[protocol-options]\nbrokers = 12",
        "a.toml, line 6: protocol-options.brokers: expected a power of two, at most the 40 nodes, not 12; "
        "for example: brokers = 8",
    ),
    "more brokers than nodes": (
        BROKERS + "[protocol-options]\nbrokers = 64",
        "a.toml, line 6: protocol-options.brokers: expected a power of two, at most the 40 nodes, not 64; "
        "for example: brokers = 32",
    ),
    "a crash": (
        SINGLE_ROOT + '[[fault]]\nat = 5\nkind = "crash"\nnode = 2',
        "a.toml, line 5: fault 1: srpt-s needs nodes that do not fail and are up from the start",
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_explained(text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "a.toml")
    assert str(caught.value).startswith(expected)


def run_with(protocol: str, options: dict[str, Any], order: str = "causal", **changes: Any) -> Result:
    scenario = Scenario(
        nodes=40,
        protocol=protocol,
        order=order,
        protocol_options=options,
        topics=TopicsTable(count=3, share=0.4),
        workload=OnceWorkload(window=2000, topic="any"),
    )
    return run_scenario(msgspec.structs.replace(scenario, **changes))


# VCube-PS as published.


def counts_of(result: Result) -> dict[str, Any]:
    about_time = ("seconds", "events_per_second")
    return {name: value for name, value in msgspec.structs.asdict(result).items() if name not in about_time}


def test_where_nobody_comes_or_goes_the_published_protocol_is_the_repaired_one_with_its_options() -> None:
    published = run_with("vcube-ps-published", {})
    repaired = run_with("vcube-ps", {"window": 1, "bundle": 1, "largest_first": False})
    assert published.violations is not None and not any(published.violations.values())
    assert counts_of(published) == counts_of(repaired)


def test_the_presets_are_those_of_the_protocol_and_switches_differ_from_them() -> None:
    names = [field.name for field in msgspec.structs.fields(PublishedVCubePsOptions) if field.name != "preset"]
    for preset, expected in (
        ("minimal", PublishedVCubeOptions.minimal()),
        ("as-printed", PublishedVCubeOptions.as_printed()),
    ):
        for changed in [None, *names]:
            switches = {} if changed is None else {changed: not getattr(expected, changed)}
            options = built_options({"preset": preset, **switches})
            differing = [name for name in names if getattr(options, name) != getattr(expected, name)]
            assert differing == ([] if changed is None else [changed])
            # Not for scenarios: nobody could unsubscribe.
            assert options.leaves_under_any_counter


def built_options(table: dict[str, Any]) -> PublishedVCubeOptions:
    scenario = Scenario(
        nodes=2, protocol="vcube-ps-published", protocol_options=table, workload=OnceWorkload(), topics=TopicsTable()
    )
    process = Simulation(scenario).engine.nodes[0].process
    assert isinstance(process, PublishedVCubePs)
    return process.options


def test_published_publications_that_wait_are_counted() -> None:
    late = NetworkTable(reordering=0.5, reordering_window=3000)
    workload = OnceWorkload(window=4000)
    result = run_with("vcube-ps-published", {}, network=late, workload=workload, topics=None)
    assert result.held_total >= result.held_peak > 0
    assert result.held_at_end == 0


# A single root per topic.


def test_a_single_root_needs_relays_and_only_members_deliver() -> None:
    result = run_with("srpt-s", {}, "none")
    assert result.violations is not None and not any(result.violations.values())
    assert result.deliveries == result.published * 16
    assert result.refused > 0


def test_the_root_can_be_chosen_for_each_topic() -> None:
    """Who is the root sends straight down its tree; all others need one more copy, and one comes back to them."""
    publisher = [PublishTable(at=0, node=9, topic=1)]
    everybody = TopicsTable(count=2, members=[[], "0-39"])
    sent = {}
    for root in (9, 5):
        options = {"roots": [1, root]}
        result = run_with("srpt-s", options, "none", topics=everybody, workload=None, publications=publisher)
        sent[root] = result.sent
    assert sent == {9: 39, 5: 40}


def test_brokers_serve_the_others_and_no_subscriber_relays() -> None:
    result = run_with("srpt-b", {"brokers": 8}, "none")
    assert result.violations is not None and not any(result.violations.values())
    assert result.deliveries == result.published * 16
    assert 0 < result.refused <= result.published * 8


@pytest.mark.parametrize(("protocol", "options"), [("srpt-s", {}), ("srpt-b", {"brokers": 2})])
def test_the_rivals_survive_random_schedules(protocol: str, options: dict[str, Any]) -> None:
    for seed in range(1, 41):
        schedule = draw_schedule(seed, "none")
        outcome = run_schedule(msgspec.structs.replace(schedule, protocol=protocol, protocol_options=options))
        assert outcome.violations == {}, f"seed {seed}: {outcome.about}"


def test_the_published_protocol_does_not() -> None:
    failed: set[str] = set()
    for seed in range(1, 21):
        schedule = draw_schedule(seed, "causal")
        changed = msgspec.structs.replace(schedule, protocol="vcube-ps-published", protocol_options={})
        failed |= run_schedule(changed).violations.keys()
    assert {"completeness", "stuck"} <= failed
    assert "error" not in failed


@pytest.mark.parametrize(
    ("protocol", "options"),
    [("causal-aggregation", {"largest_packet": 300}), ("timer-bundling", {"timer": 30, "largest_packet": 300})],
)
def test_broadcasts_in_packets_are_protocols_of_scenarios(protocol: str, options: dict[str, object]) -> None:
    """They send fewer packets than a broadcast sends copies, and the judgement finds nothing violated."""
    scenario = Scenario(
        nodes=32,
        protocol=protocol,
        protocol_options=options,
        network=NetworkTable(delay=NormalLaw(mean=100, deviation=60)),
        workload=OnceWorkload(window=300),
    )
    result = run_scenario(scenario)
    assert result.deliveries == 32 * 32
    assert result.sent < 32 * 31
    assert result.violations is not None
    assert not any(result.violations.values())
