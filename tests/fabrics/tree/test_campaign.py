"""Random schedules of the broker tree: clean as it is, and each of several planted defects is found."""

from __future__ import annotations

import pytest

from antiphon.simulator.scenario.scenario import PartitionFault
from antiphon.torture.campaign import run_seeds
from antiphon.torture.progress import LEAST_FRESH
from antiphon.torture.schedules.tree import draw_tree_schedule
from tests.mutation.hunt import hunt
from tests.mutation.mutant import Mutant

SEEDS = 120


def test_schedules_hold_what_they_promise() -> None:
    """Crashes of the root, of several at once and of publishers, total publications and several keys: all occur."""
    scenarios = [draw_tree_schedule(seed) for seed in range(SEEDS)]
    faults = [sum(type(fault).__name__ == "CrashFault" for fault in scenario.faults) for scenario in scenarios]
    assert max(faults) > 3 and faults.count(0) > 5
    assert any(len(one.keys) > 1 and one.order == "total" for scenario in scenarios for one in scenario.publications)
    assert max(scenario.nodes for scenario in scenarios) > 16


def test_no_schedule_breaks_the_tree() -> None:
    tally = run_seeds(range(SEEDS), None, "tree")
    assert tally.violations == {}, [outcome.about for outcome in tally.failing]
    assert tally.deliveries > 10_000


def test_crowded_schedules_hold_what_they_promise() -> None:
    """Fresh seeds draw them, one in four: newcomers that are cut off, logs, and disks with which brokers return."""
    drawn = [draw_tree_schedule(seed) for seed in range(LEAST_FRESH, LEAST_FRESH + 4 * SEEDS)]
    crowded = [scenario for scenario in drawn if scenario.protocol_options["collect"] == 20]
    assert len(crowded) > SEEDS // 8
    joining = [scenario for scenario in crowded if scenario.absent_at_start()]
    cut_off = [
        fault
        for scenario in joining
        for fault in scenario.faults
        if isinstance(fault, PartitionFault) and scenario.absent_at_start() & set(fault.groups[0])
    ]
    assert cut_off and any(fault.one_way for fault in cut_off)
    assert any(scenario.protocol_options.get("absence") == 500 for scenario in crowded)
    assert any(scenario.protocol_options.get("disk") for scenario in crowded)


def test_fresh_schedules_have_sessions_of_both_kinds_and_lower_seeds_keep_theirs() -> None:
    fresh = [draw_tree_schedule(seed) for seed in range(LEAST_FRESH, LEAST_FRESH + SEEDS)]
    loose = [one for one in fresh if one.protocol_options.get("strict_session") is False]
    assert SEEDS // 16 < len(loose) < SEEDS // 4
    assert all("strict_session" not in draw_tree_schedule(seed).protocol_options for seed in range(SEEDS))


def test_no_fresh_schedule_breaks_the_tree() -> None:
    tally = run_seeds(range(LEAST_FRESH, LEAST_FRESH + SEEDS), None, "tree")
    assert tally.violations == {}, [outcome.about for outcome in tally.failing]


def defect(name: str, part: str, old: str, new: str) -> Mutant:
    """A broker with one part that is broken."""
    return Mutant(name, "tree", f"fabrics/tree/{part}.py", old, new)


def finds(bug: Mutant, seeds: range, kinds: set[str]) -> bool:
    """Whether a schedule finds one of these promises broken; the first one that fails usually does."""
    return any(kinds & set(hunt(bug, seeds.start, len(seeds), stops).kinds) for stops in (True, False))


DOES_NOT_WAIT_FOR_CHILDREN = defect(
    "a broker says that everybody below is closed when it is closed itself",
    "total_order",
    "        epoch = self._view.epoch\n        if lock.said_in == epoch or lock.epoch != epoch:\n",
    "        epoch = self._view.epoch\n        return lock.said_in != epoch\n        if lock.said_in == epoch:\n",
)
WAITS_FOR_NOBODY = defect(
    "a root begins an epoch although living brokers have no way to it",
    "root",
    "            for broker in view.everybody()\n",
    "            for broker in ()\n",
)
KEEPS_TALKING = defect(
    "a broker publishes about keys that are closed",
    "publisher",
    "        if topic.is_closed(publication):\n            topic.wait_for_key",
    "        if topic.owner < 0:\n            topic.wait_for_key",
)
SENDS_NOTHING_AFTER_REPAIR = defect(
    "a broker does not tell its new parent what that one has not got",
    "streams",
    "            for item in topic.missing_at(frontier):\n",
    "            for item in ():\n",
)
SAYS_NOTHING_OF_LOSSES = defect(
    "a broker does not report that somebody below has failed",
    "attachment",
    "        below = view.children.get(sender)\n        unready =",
    "        return\n        below = view.children.get(sender)\n        unready =",
)
FORGETS_PROPOSALS = defect(
    "a broker proposes a total publication once, whatever happens to it",
    "total_order",
    "        self._hand_up(Proposal(publication, self._view.epoch))\n",
    "        self._hand_up(Proposal(publication, self._view.epoch))\n"
    "        topic.proposed.pop(publication_key(publication.source, publication.sequence), None)\n",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "found"),
    [
        (DOES_NOT_WAIT_FOR_CHILDREN, {"total"}),
        (WAITS_FOR_NOBODY, {"total", "causal", "error", "stuck", "endless", "completeness"}),
        (KEEPS_TALKING, {"total", "fifo", "causal"}),
        (SENDS_NOTHING_AFTER_REPAIR, {"completeness", "error", "causal", "fifo"}),
        (SAYS_NOTHING_OF_LOSSES, {"stuck", "endless", "total", "completeness"}),
        (FORGETS_PROPOSALS, {"completeness", "stuck", "requests", "fifo", "causal"}),
    ],
    ids=lambda given: given.name if isinstance(given, Mutant) else "",
)
def test_the_campaign_finds_a_planted_defect(bug: Mutant, found: set[str]) -> None:
    assert finds(bug, range(400, 460), found)


ORDERS_WITHOUT_MAJORITY = defect(
    "a root goes on to order totally, whoever is missing",
    "root",
    "council, council.is_held_by(members), gone)\n",
    "council, True, gone)\n",
)
FORGETS_THE_ABSENT = defect(
    "a broker keeps nothing for those who are cut off",
    "stability",
    "                if stable.is_final:\n",
    "                if True:\n",
)
RECORDS_NO_PLACES = defect(
    "a log does not say where in the streams publications stood, and is of no use to those who were given up",
    "broker",
    "        if handled is not None and handled.publication is publication:\n            return handled\n",
    "",
)


@pytest.mark.parametrize(
    ("bug", "found", "seeds"),
    [
        (ORDERS_WITHOUT_MAJORITY, {"total"}, range(50)),
        (FORGETS_THE_ABSENT, {"completeness"}, range(30)),
        (RECORDS_NO_PLACES, {"completeness"}, range(90, 150)),
    ],
    ids=lambda given: given.name if isinstance(given, Mutant) else "",
)
def test_the_campaign_finds_a_defect_of_partitions(bug: Mutant, found: set[str], seeds: range) -> None:
    assert finds(bug, seeds, found)


def test_a_pause_and_a_short_partition_do_not_reorder_what_is_on_a_connection() -> None:
    """What had come to a node that stood still was held up behind what came later, and a lock was passed over."""
    tally = run_seeds(range(2350500, 2350501), None, "tree")
    assert tally.violations == {}
