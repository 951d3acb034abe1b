"""Last words: how every schedule ends, and that whoever does not hear them is found out."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from antiphon.simulator.scenario.last_words import (
    LAST_WORDS,
    LONG_AFTER,
    last_words_of,
    listeners,
    quiet_since,
    unheard,
)
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import (
    CrashFault,
    LeaveFault,
    NetworkTable,
    PartitionFault,
    PauseFault,
    PublishTable,
    RestartFault,
    Scenario,
    SubscribeTable,
    TopicsTable,
)
from antiphon.simulator.scenario.verdict import Witness, judge_run
from antiphon.torture.campaign import run_schedule
from antiphon.torture.schedules import SCHEDULES
from antiphon.torture.schedules.every_fabric import is_calm
from antiphon.torture.schedules.families import FAMILIES
from antiphon.torture.schedules.last_words import with_last_words
from antiphon.torture.schedules.operations import PAUSE, operations_of

SOME = range(1, 60)


@pytest.mark.parametrize("fabric", list(SCHEDULES))
def test_every_schedule_of_every_fabric_has_them(fabric: str) -> None:
    """All members of all topics that may publish speak, long after everything is healed."""
    spoken = 0
    for seed in SOME:
        scenario = SCHEDULES[fabric](seed, None)
        if is_calm(scenario):
            continue
        late = [one for one in scenario.publications if one.at >= quiet_since(scenario) + LONG_AFTER]
        failing = {fault.node for fault in scenario.faults if isinstance(fault, CrashFault | LeaveFault)}
        for topic, members in enumerate(listeners(scenario)):
            steady = members - failing - scenario.absent_at_start()
            assert steady <= {one.node for one in late if one.topic == topic}
            spoken += len(steady)
        assert all(one.until > 0 for one in operations_of(scenario) if one.kind == PAUSE)
    assert spoken > 100


@pytest.mark.parametrize("fabric", list(FAMILIES))
def test_a_schedule_is_what_it_was_before_them(fabric: str) -> None:
    for seed in range(1, 20):
        drawn, whole = FAMILIES[fabric].draw(seed, None), SCHEDULES[fabric](seed, None)
        before = whole.publications[: len(drawn.publications)]
        # The same faults, perhaps listed in another order.
        assert len(whole.faults) == len(drawn.faults) and all(fault in drawn.faults for fault in whole.faults)
        assert msgspec.structs.replace(whole, publications=before, faults=drawn.faults) == drawn


def cube(**changes: object) -> Scenario:
    """Four nodes on one topic; the first publishes once."""
    scenario = Scenario(
        nodes=4,
        protocol="vcube-ps-lasting",
        protocol_options={"log": 1000},
        network=NetworkTable(in_order=True),
        topics=TopicsTable(members=[[0, 1, 2, 3]]),
        publications=[PublishTable(at=5, node=0)],
    )
    return with_last_words(msgspec.structs.replace(scenario, **changes))


def test_those_who_are_gone_neither_speak_nor_listen() -> None:
    scenario = cube(
        faults=[CrashFault(at=10, node=1), CrashFault(at=20, node=2), RestartFault(at=900, node=2)],
        unsubscriptions=[SubscribeTable(at=30, node=3)],
    )
    assert listeners(scenario) == [{0, 2}]
    assert [(one.at, one.node) for one in last_words_of(scenario)] == [(100_900, 0), (100_910, 2)]
    assert not run_schedule(scenario).violations


def test_what_has_no_end_gets_one() -> None:
    scenario = cube(faults=[PauseFault(at=50, node=1), PartitionFault(at=60, groups=[[0, 1]])])
    assert quiet_since(scenario) == 61
    assert len(last_words_of(scenario)) == 4
    assert not run_schedule(scenario).violations


def judged(scenario: Scenario, spoil: Callable[[Witness], None]) -> tuple[dict[str, int], str]:
    """What the judge says of a run of which it was shown something else."""
    witness = Witness(scenario.nodes)
    simulation = Simulation(scenario, witness.recorder)
    stopped = simulation.run()
    spoil(witness)
    violations, about = judge_run(scenario, witness, stopped, 0)
    assert violations is not None
    return violations, about


def test_who_is_deaf_is_found_out() -> None:
    scenario = cube(faults=[CrashFault(at=10, node=1), RestartFault(at=90, node=1)])

    def deaf(witness: Witness) -> None:
        rows = witness.table()
        assert rows is not None
        heard = [
            not (event == "deliver" and node == 1 and source == 3)
            for event, node, source in zip(
                *(rows[name].to_pylist() for name in ("event", "node", "source")), strict=True
            )
        ]
        witness._tables = [rows.filter(heard)]

    assert judged(scenario, lambda _: None)[0][LAST_WORDS] == 0
    violations, about = judged(scenario, deaf)
    assert violations[LAST_WORDS] == 1
    assert "last words: 1, such as node 1 did not deliver publication 1 of 3 on topic 0" in about


def test_a_last_word_that_is_refused_is_found_out() -> None:
    scenario = cube()
    witness = Witness(scenario.nodes)
    Simulation(scenario, witness.recorder).run()
    table = witness.table()
    assert table is not None
    assert unheard(scenario, witness.asked, table) == (0, "")
    count, example = unheard(scenario, witness.asked[:-1], table)
    assert (count, example) == (1, "the publication of node 3 at 100035 was not accepted")


def test_no_word_of_a_loss_excuses_anybody() -> None:
    """A cut excuses what is said to be lost during it, and nothing that is published long after it."""
    scenario = cube(faults=[PartitionFault(at=2, until=500, groups=[[0, 1]])], order="total")
    witness = Witness(scenario.nodes)
    stopped = Simulation(scenario, witness.recorder).run()
    rows = witness.table()
    assert rows is not None
    names = ("event", "node", "source")
    heard = [
        not (e == "deliver" and n == 2 and s == 3)
        for e, n, s in zip(*(rows[x].to_pylist() for x in names), strict=True)
    ]
    witness._tables = [rows.filter(heard)]
    said = {"event": "lost", "node": 2, "topic": 0, "source": 3, "sequence": 1}
    lost = pa.Table.from_pylist([{**dict.fromkeys(rows.column_names), **said}], schema=rows.schema)
    witness._tables.append(lost)
    violations, _ = judge_run(scenario, witness, stopped, 0)
    assert violations is not None
    assert violations[LAST_WORDS] == 1
