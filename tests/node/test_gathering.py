"""What leaves a node together: all of a turn, and all of the time to gather."""

from __future__ import annotations

import asyncio
import sys

import pytest

import antiphon
from antiphon.kernel.errors import UsageError
from antiphon.node.settings import Settings
from antiphon_lab.bench.live_packets import (
    WITH_AND_WITHOUT,
    Counted,
    Packets,
    PacketTask,
    measure_packets,
    median_of,
    summary,
)
from tests.node.support import cluster, running, take_values

ROUNDS = 20


def test_an_answer_never_comes_before_its_question() -> None:
    """Nobody loses anything, and whoever answers is heard after what it answers, whatever waits on the way."""

    async def test() -> None:
        async with cluster(5, gather_seconds=0.002) as nodes:
            subscriptions = [await node.subscribe("room").ready() for node in nodes]
            for number in range(ROUNDS):
                speaker = number % len(nodes)
                await nodes[speaker].publish("room", f"{number}".encode())
                # Whoever speaks next has heard it.
                heard = await asyncio.gather(*(take_values(one, 1) for one in subscriptions))
                assert heard == [[f"{number}".encode()]] * len(nodes)

    running(test)


def test_what_is_gathered_is_written_at_once() -> None:
    """Several turns of the loop become one write; without gathering each is one."""

    async def test(gather_seconds: float) -> int:
        async with cluster(2, gather_seconds=gather_seconds) as (speaker, listener):
            heard = await listener.subscribe("room").ready()
            await speaker.subscribe("room").ready()
            (link,) = speaker._live.host.links.values()
            before = link.writes
            for number in range(ROUNDS):
                await speaker.publish("room", f"{number}".encode())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await take_values(heard, ROUNDS)
            if sys.platform == "linux":
                assert link.segments_sent() > 0
            return link.writes - before

    assert running(lambda: test(0.2)) < ROUNDS / 2 < running(lambda: test(0.0))


def test_live_nodes_do_not_aggregate() -> None:
    """Publishing would stall when one of them fails, and nobody would be told."""
    with pytest.raises(
        UsageError, match="a cluster that aggregates stalls when one of its nodes fails; leave aggregate"
    ):
        antiphon.start(aggregate=True)


def test_a_time_to_gather_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match=r"gather_seconds is from 0 to 1\.0, not -1"):
        Settings(gather_seconds=-1.0).checked()


def test_packets_are_counted_per_message_published() -> None:
    found = measure_packets("default", processes=2, rate=50.0, payload_bytes=100, seconds=0.4)
    assert found.published == 40
    # Each message goes to one other node, and is acknowledged.
    assert found.frames_per_message >= 1
    assert 0 < found.writes_per_message <= found.frames_per_message
    assert found.bytes_per_message > 100
    assert found.p50_us <= found.p99_us


def test_surviving_faults_is_measured_beside_plain_trees() -> None:
    """Both send publications and acknowledgements; one of them also says that it goes on, and may compare."""
    with_faults, plain = (
        measure_packets(variant, processes=2, rate=50.0, payload_bytes=100, seconds=0.4) for variant in WITH_AND_WITHOUT
    )
    for found in (with_faults, plain):
        assert found.published == 40 and found.deliveries_per_second > 0 and found.memory_mib > 1
        assert found.kinds_per_message["Ordered"] > 0 and found.kinds_per_message["Acknowledgement"] > 0
        assert sum(found.kinds_per_message.values()) == pytest.approx(found.frames_per_message)
    assert "Digest" not in plain.kinds_per_message


def counted(writes: int) -> Counted:
    """What a process says that has published 10 messages with so many writes."""
    return Counted(10, 20, writes, writes, 1000, 0, [1, 2, 3], 0.5, 2.0, 1 << 20, {"Ordered": 10})


def test_figures_of_a_run_are_those_of_all_processes() -> None:
    found = summary("plain", PacketTask(Settings(), 2, 10, 5.0, 100), [counted(10), counted(30)])
    assert (found.published, found.writes_per_message, found.deliveries_per_second) == (20, 2.0, 20.0)
    assert found.kinds_per_message == {"Ordered": 1.0, "of hosts": 1.0} and found.memory_mib == 1.0


def test_the_middle_of_several_rounds_counts() -> None:
    task = PacketTask(Settings(), 2, 10, 5.0, 100)
    rounds: list[Packets] = [summary("default", task, [counted(writes)]) for writes in (10, 90, 20)]
    assert median_of(rounds).writes_per_message == 2.0
    assert median_of(rounds).variant == "default"
