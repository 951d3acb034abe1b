"""What a node says about itself over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

import antiphon
from antiphon import Node, UsageError
from antiphon.node.status import READERS_AT_MOST, REQUEST_BYTES_AT_MOST, TOPICS_SHOWN
from antiphon.transport.links import split_address
from tests.node.support import child, cluster, running, take, until


async def ask(node: Node, request: bytes) -> tuple[int, str]:
    """The status and the body of the answer to raw bytes; status 0 if there is none."""
    assert node._live._status_server is not None
    host, port = split_address(node._live._status_server.address)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        writer.write_eof()
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    if not head:
        return 0, ""
    assert f"Content-Length: {len(body.encode())}" in head
    return int(head.split(" ")[1]), body


async def get(node: Node, path: str) -> tuple[int, str]:
    return await ask(node, f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())


def test_metrics_are_what_prometheus_reads() -> None:
    async def test() -> None:
        async with cluster(2, metrics="127.0.0.1:0") as (here, there):
            subscription = await there.subscribe('a"b\\c.ü').ready()
            for _ in range(10):
                await here.publish('a"b\\c.ü', b"12345")
            await take(subscription, 10)
            status, body = await get(there, "/metrics")
            samples = {
                (sample.name, sample.labels.get("topic")): sample.value
                for family in text_string_to_metric_families(body)
                for sample in family.samples
            }
            assert status == 200
            assert samples["antiphon_peers", None] == 1
            assert samples["antiphon_healthy", None] == 1
            assert samples["antiphon_topic_delivered_messages_total", 'a"b\\c.ü'] == 10
            assert samples["antiphon_topic_subscriptions", 'a"b\\c.ü'] == 1
            assert samples["antiphon_topic_end_offset", 'a"b\\c.ü'] == 10
            assert samples["antiphon_bytes_sent_total", None] > 0

    running(test)


def test_status_is_json_and_the_same_as_a_client_gets() -> None:
    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,), antiphon.connect(node.address) as client:
            status, body = await get(node, "/status?pretty")
            found, asked = json.loads(body), await client.status()
            assert status == 200
            # A client is also told its own number.
            assert {*found, "author"} == asked.keys()
            assert (found["node"], found["address"], found["clients"]) == (node.identifier, node.address, 1)

    running(test)


def test_counters_of_dropped_messages_and_of_waiting_publishers() -> None:
    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,):
            slow = await node.subscribe("room", policy="drop_newest", limit=1).ready()
            for _ in range(5):
                await node.publish("room", b"")
                await node.flush()
            topic = json.loads((await get(node, "/status"))[1])["topics"]["room"]
            assert (topic["dropped"], topic["lag"], topic["published"], topic["unsent"]) == (4, 1, 5, 0)
            assert slow.dropped == 4

    running(test)


def test_health_and_readiness() -> None:
    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,):
            assert await get(node, "/health") == await get(node, "/ready") == (200, "ok\n")
            async with child("serve", f"join={node.address}") as other:
                await until(lambda: len(node._live.cluster.peers()) == 1)
                assert await get(node, "/ready") == (200, "ok\n")
                await other.kill()
            await until(lambda: node._live.cluster.lost_nodes)
            assert await get(node, "/health") == (200, "ok\n")
            # The others go on: a node that is lost keeps nobody from using this one.
            assert await get(node, "/ready") == (200, "ok\n")

    running(test)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET\r\n\r\n", 0),
        (b"\r\n\r\n", 0),
        (b"\xff\xfe\r\n\r\n", 0),
        (b"GET /health HTTP/1.1\r\n", 0),
        (b"", 0),
        (b"GET /" + b"x" * 4 * REQUEST_BYTES_AT_MOST + b"\r\n\r\n", 0),
    ],
)
def test_bad_requests_are_answered_or_not_and_harm_nobody(request_bytes: bytes, status: int) -> None:
    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,):
            assert (await ask(node, request_bytes))[0] == status
            assert await get(node, "/health") == (200, "ok\n")

    running(test)


def test_an_address_for_metrics_that_is_taken_is_refused_and_nothing_is_left() -> None:
    async def test() -> None:
        async with cluster(1) as (node,):
            with pytest.raises(UsageError, match="for metrics"):
                await antiphon.start(join=[node.address], metrics=node.address)
            await until(lambda: not node._live.cluster.peers())

    running(test)


def test_silent_connections_make_room_for_those_that_ask() -> None:
    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,):
            assert node._live._status_server is not None
            host, port = split_address(node._live._status_server.address)
            silent = [await asyncio.open_connection(host, port) for _ in range(READERS_AT_MOST + 8)]
            for _ in range(10):
                assert await get(node, "/health") == (200, "ok\n")
            for _, writer in silent:
                writer.close()

    running(test)


def test_figures_of_many_topics_are_bounded_and_the_loop_goes_on() -> None:
    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,):
            for number in range(TOPICS_SHOWN + 500):
                node._live.loop.topics.topic(f"topic.{number}")
            busiest = f"topic.{TOPICS_SHOWN + 400}"
            await node.publish(busiest, b"")
            await node.flush()
            _, body = await get(node, "/metrics")
            shown = [line for line in body.splitlines() if line.startswith("antiphon_topic_lag{")]
            assert len(shown) == TOPICS_SHOWN
            assert f'antiphon_topic_published_total{{topic="{busiest}"}} 1.0' in body
            known = len(node._live.loop.topics.by_name)
            assert f"antiphon_topics_known {known}.0" in body and known >= TOPICS_SHOWN + 500

    running(test)


def test_metrics_are_written_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def text_of(figures: dict[str, object]) -> bytes:
        threads.append(threading.get_ident())
        return b"written"

    async def test() -> None:
        async with cluster(1, metrics="127.0.0.1:0") as (node,):
            assert await get(node, "/metrics") == (200, "written")

    monkeypatch.setattr("antiphon.node.status.metrics_text", text_of)
    running(test)
    assert threads and threads != [threading.get_ident()]
