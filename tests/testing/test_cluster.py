"""What users get for tests of their own: a real cluster, a virtual clock, faults to order."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.fabrics.registry import FABRICS
from antiphon.testing.virtual_loop import VirtualTimeLoop, WaitsForeverError
from tests.node.support import exact_values

EVERY_FABRIC = pytest.mark.parametrize("fabric", FABRICS)


def now() -> float:
    return asyncio.get_running_loop().time()


@testing.with_cluster(nodes=3)
async def test_an_answer_waits_for_a_question_on_a_slow_link(cluster: testing.Cluster) -> None:
    anna, ben, carl = [await cluster.connect(number) for number in range(3)]
    for_ben = await ben.subscribe("room").ready()
    for_carl = await carl.subscribe("room").ready()
    # The first publication makes the node a member of the topic.
    await anna.publish("room", b"hello")
    assert await exact_values(for_ben, 1) == await exact_values(for_carl, 1) == [b"hello"]
    cluster.delay(0, 2, 1.0)
    asked_at = now()
    await anna.publish("room", b"why?")
    assert await exact_values(for_ben, 1) == [b"why?"]
    await ben.publish("room", b"because", order="causal")
    assert await exact_values(for_carl, 2) == [b"why?", b"because"]
    # The answer was there at once. Its node asked others for the question before the slow link brought it.
    assert 0.1 < now() - asked_at <= 1.1


@EVERY_FABRIC
def test_an_hour_passes_in_a_moment_and_time_stamps_follow(fabric: str) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        client = await cluster.connect(0)
        room = await client.subscribe("room").ready()
        await client.publish("room", b"early")
        await asyncio.sleep(3600)
        await client.publish("room", b"late")
        stamps = []
        async for message in room:
            stamps.append(message.timestamp)
            if len(stamps) == 2:
                break
        assert (stamps[1] - stamps[0]).total_seconds() == pytest.approx(3600, abs=1)

    clock = time.monotonic
    testing.run(scenario, nodes=2, timeout=4000, fabric=fabric)
    assert time.monotonic is clock, "the clocks of the process are its own again"


@EVERY_FABRIC
def test_a_client_goes_on_when_its_node_crashes(fabric: str) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        writer, reader = await cluster.connect(0), await cluster.connect(1, 2)
        room = await reader.subscribe("room").ready()
        await writer.publish("room", b"1")
        assert await exact_values(room, 1) == [b"1"]
        await cluster.crash(1)
        assert cluster.running == [0, 2]
        await writer.publish("room", b"2")
        assert await exact_values(room, 1) == [b"2"]
        assert (reader.reconnects, room.gaps) == (1, 0)
        await cluster.restart(1)
        await writer.publish("room", b"3")
        assert await exact_values(room, 1) == [b"3"]

    testing.run(scenario, nodes=3, fabric=fabric)


@testing.with_cluster(nodes=2, durable=True)
async def test_a_durable_node_has_its_log_again_after_a_crash(cluster: testing.Cluster) -> None:
    client = await cluster.connect(0)
    await client.subscribe("room").ready()
    for number in range(3):
        await client.publish("room", b"%d" % number)
    await client.close()
    await cluster.crash(0)
    node = await cluster.restart(0)
    assert await exact_values(await node.subscribe("room", start="earliest").ready(), 3) == [b"0", b"1", b"2"]


@testing.with_cluster(nodes=3, fabric="tree")
async def test_a_partition_takes_the_majority_from_one_side_until_it_heals(cluster: testing.Cluster) -> None:
    alone, together = await cluster.connect(2, name="alone"), await cluster.connect(0, name="together")
    room = await together.subscribe("room").ready()
    cluster.partition([2, "alone"])
    await asyncio.sleep(20)
    with pytest.raises(antiphon.NoMajorityError):
        await alone.publish("room", b"?", order="total", key=b"anna")
    await together.publish("room", b"majority", order="total", key=b"anna")
    assert await exact_values(room, 1) == [b"majority"]
    cluster.heal()
    await asyncio.sleep(30)
    await alone.publish("room", b"again", order="total", key=b"anna")
    assert await exact_values(room, 1) == [b"again"]


@testing.with_cluster(nodes=1)
async def test_nodes_may_join_and_leave(cluster: testing.Cluster) -> None:
    node = await cluster.add_node()
    room = await node.subscribe("room").ready()
    await cluster.nodes[0].publish("room", b"welcome")
    assert await exact_values(room, 1) == [b"welcome"]
    await cluster.stop(0)
    assert cluster.running == [1]
    await node.publish("room", b"alone")
    assert await exact_values(room, 1) == [b"alone"]


@testing.with_cluster(nodes=1)
async def test_fixtures_of_pytest_are_given_as_usual(tmp_path: Path, cluster: testing.Cluster) -> None:
    assert tmp_path.is_dir() and len(cluster.nodes) == 1


def test_a_test_that_waits_in_vain_fails_after_its_virtual_time() -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        client = await cluster.connect()
        await exact_values(await client.subscribe("silence").ready(), 1)

    with pytest.raises(TimeoutError):
        testing.run(scenario, nodes=2, timeout=300)


def test_a_loop_on_which_nothing_can_happen_any_more_says_so() -> None:
    loop = VirtualTimeLoop()
    try:
        with pytest.raises(WaitsForeverError):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("nodes", "settings", "said"),
    [(0, {}, "at least one node"), (2, {"data": "here"}, "durable=True"), (1, {"listen": "127.0.0.1:1"}, "'listen'")],
)
def test_settings_that_the_cluster_chooses_itself_are_refused(nodes: int, settings: dict[str, Any], said: str) -> None:
    async def scenario(_: testing.Cluster) -> None:
        raise AssertionError("it does not come to this")

    with pytest.raises(antiphon.UsageError, match=said):
        testing.run(scenario, nodes, **settings)


@testing.with_cluster(nodes=2)
async def test_faults_that_make_no_sense_are_refused(cluster: testing.Cluster) -> None:
    with pytest.raises(antiphon.UsageError, match="running: \\[0, 1\\]"):
        await cluster.crash(7)
    with pytest.raises(antiphon.UsageError, match="crash or stop it first"):
        await cluster.restart(1)
    await cluster.crash(1)
    with pytest.raises(antiphon.UsageError, match="running: \\[0\\]"):
        await cluster.crash(1)


def test_a_test_without_a_cluster_is_refused() -> None:
    async def test() -> None:
        """Takes nothing."""

    with pytest.raises(antiphon.UsageError, match="'cluster'"):
        testing.with_cluster()(test)


@testing.with_cluster(nodes=1)
async def test_short_answers_leave_at_once_on_every_event_loop(cluster: testing.Cluster) -> None:
    """uvloop turns Nagle's algorithm off by itself; Python's own loop does not for connections that a node accepts."""
    await cluster.connect(0)
    sockets = [
        each.transport.get_extra_info("socket") for each in cluster.nodes[0]._live.host.incoming() if each.transport
    ]
    assert [accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for accepted in sockets] == [1]
