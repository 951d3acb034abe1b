"""A live campaign of a few seconds for each fabric that survives faults; ``antiphon torture --live`` is the rest.

Nothing here depends on how long something takes: a campaign waits until everybody has recovered, and what applications
wrote down is judged when all has come to rest.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon.audit.auditor import audit_files
from antiphon.fabrics.registry import FABRICS
from antiphon.membership.messages import PROTOCOL_VERSION
from antiphon.torture.live import overload
from antiphon.torture.live.campaign import CampaignPlan, LiveCampaign, LiveFigures
from antiphon.torture.live.overload import Flood, OverloadPlan
from antiphon.torture.live.power import compiler
from tests.node.support import cluster, running, take_values

SEED = 3


def campaign(
    directory: Path,
    fabric: str,
    faults: tuple[str, ...],
    seconds: float,
    has_logs: bool = True,
    disks_lie: bool = False,
    seed: int = SEED,
) -> LiveFigures:
    """A small one, judged."""
    orders = FABRICS[fabric].orders
    plan = CampaignPlan(
        fabric, 4, seconds, seed, faults, orders, 10.0, directory, has_logs, floods=(1,), disks_lie=disks_lie
    )

    async def run() -> LiveCampaign:
        begun = LiveCampaign(plan, lambda _: None)
        await begun.run()
        return begun

    ended = antiphon.run(run())
    ended.judge(audit_files)
    return ended.figures


def check(figures: LiveFigures) -> None:
    """Nothing was lost, doubled or out of order, and everybody has recovered from every fault."""
    assert not figures.has_failed, figures.examples
    assert figures.accepted > 0 and figures.deliveries >= 3 * figures.accepted
    recovered = {kind: len(times) for kind, times in figures.recoveries.items()}
    assert recovered == {kind: count for kind, count in figures.faults.items() if count}
    told = [(line.what, line.kind) for line in figures.timeline]
    assert all(told.count((what, kind)) == count for what in ("happens", "heals") for kind, count in recovered.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fabric", "faults"),
    [
        ("tree", ("kill", "pause", "cut", "delay", "disk")),
        ("gossip", ("kill", "pause", "delay", "disk")),
        ("cube", ("kill", "pause", "cut", "delay", "disk")),
    ],
)
def test_nothing_is_lost_through_faults(tmp_path: Path, fabric: str, faults: tuple[str, ...]) -> None:
    check(campaign(tmp_path, fabric, faults, 5.0))


needs_compiler = pytest.mark.skipif(
    compiler() is None or sys.platform != "linux", reason="losses of power need Linux and a C compiler"
)


@pytest.mark.slow
@needs_compiler
def test_what_a_node_has_accepted_on_disk_survives_a_loss_of_power(tmp_path: Path) -> None:
    figures = campaign(tmp_path, "cube", ("power",), 1.0)
    check(figures)
    assert figures.unsynced_changes > 0, "nothing was at stake"


@pytest.mark.slow
@needs_compiler
def test_nodes_whose_disks_only_say_that_they_sync_are_found_out(tmp_path: Path) -> None:
    """Nothing is lost for clients, who hand in again what others lack; but what was said of the disk is not true."""
    figures = campaign(tmp_path, "cube", ("power",), 1.0, disks_lie=True)
    assert figures.violations["durability"] > 0
    assert any("durability" in example for example in figures.examples)


@pytest.mark.slow
@pytest.mark.parametrize(("fabric", "has_logs"), [("cube", False)])
def test_subscribers_of_every_policy_that_come_lag_and_vanish_cost_nobody_anything(
    tmp_path: Path, fabric: str, has_logs: bool
) -> None:
    """Without logs publishers wait for those that lag, and go on when these have ended."""
    figures = campaign(tmp_path, fabric, ("crowd",), 0.1, has_logs)
    check(figures)
    assert figures.subscribers > 6 and figures.dropped > 0, "nobody has lagged"
    assert figures.violations["drops"] == figures.violations["stalls"] == 0


@pytest.mark.slow
@needs_compiler
def test_nothing_accepted_is_lost_where_nodes_are_killed_while_their_disks_are_slow_or_full(tmp_path: Path) -> None:
    figures = campaign(tmp_path, "tree", ("slow", "disk", "power"), 10.0)
    check(figures)
    # On a busy machine a node may take all of these seconds to recover from the first.
    assert sum(figures.faults.values()) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["tree", pytest.param("cube", marks=pytest.mark.campaign)])
def test_nobody_notices_that_all_nodes_are_restarted_one_after_the_other(tmp_path: Path, fabric: str) -> None:
    """Nothing is lost, doubled or out of order at clients, which are told of no gap either."""
    figures = campaign(tmp_path, fabric, ("roll",), 0.1)
    check(figures)
    assert figures.faults == {"roll": 1}
    assert figures.moves > 0 and figures.gaps == 0


NEXT_VERSION = """
import antiphon.membership.membership as membership
membership.PROTOCOL_VERSION += 1
membership.OLDEST_VERSION = membership.PROTOCOL_VERSION
from antiphon.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_node_without_a_common_wire_version_is_refused_with_the_reason(fabric: str) -> None:
    async def test() -> None:
        async with cluster(2, fabric=fabric) as nodes:
            words = ["node", "--fabric", fabric, "--join", nodes[0].address, "--join-seconds", "1"]
            environment = {**os.environ, "PYTHONPATH": str(Path(antiphon.__file__).parent.parent)}
            command = [sys.executable, "-c", NEXT_VERSION, *words]
            process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
            )
            _, complained = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 1, complained
            text = " ".join(complained.decode().split())
            ours, theirs = PROTOCOL_VERSION, PROTOCOL_VERSION + 1
            assert f"speaks versions {theirs} to {theirs}, this one {ours} to {ours}; upgrade the older one" in text
            # Those of this version go on.
            subscription = nodes[1].subscribe("room")
            await subscription.ready()
            await nodes[0].publish("room", b"still here")
            assert await take_values(subscription, 1) == [b"still here"]

    running(test)


@pytest.mark.slow
def test_who_asks_for_too_much_is_told_and_whatever_is_accepted_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The flood keeps its turn until buffers are full: on a busy machine 5 ms pass before it has asked for much.
    monkeypatch.setattr(overload, "TURN_US", 500_000)
    plan = OverloadPlan("tree", 3, 1.0, 1000.0, "causal", tmp_path, measure_seconds=0.5)
    figures = antiphon.run(Flood(plan, print).run())
    assert not figures.has_failed, figures
    assert figures.refused > 0 and figures.accepted + figures.refused == figures.asked + 1
    assert figures.accepted == figures.delivered > 0
