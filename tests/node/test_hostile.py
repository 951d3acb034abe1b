"""Hostile and broken peers: one test per attack, each against a live node that has to stay of use to everybody else."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon import Node, PeerError
from antiphon.api import waiting
from antiphon.api.batch_codec import check_payload, encode_columns
from antiphon.api.columns import Author, Columns
from antiphon.kernel.errors import ProtocolError
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.node.gateway import client_session
from antiphon.node.gateway.client_relay import MessagesInFlight
from antiphon.node.gateway.session_host import check_batches
from antiphon.node.loop import NodeLoop
from antiphon.runtime.logging import JsonFormatter, LineFormatter, logger
from antiphon.sessions import backlog, client_messages
from antiphon.sessions.client_messages import MessagesConsumed, PublishRequest, StatusRequest, SubscribeRequest
from antiphon.sessions.peer_messages import ReplayResponse
from antiphon.transport import frame_budget, incoming, listener
from antiphon.transport.framing import BUFFER_BYTES, FIRST_BUFFER_BYTES
from antiphon.transport.links import split_address
from antiphon.transport.listener import STRANGERS_AT_MOST
from tests.node.secure import ours
from tests.node.strangers import attacking, frames
from tests.node.support import cluster, outcome, running, take_values, until

CLIENT = Hello(PROTOCOL_VERSION, "antiphon", "client", "")


@asynccontextmanager
async def attacked(**settings: Any) -> AsyncIterator[Node]:
    """A node that serves an honest client before and after; whoever has attacked it is gone at the end."""
    async with cluster(1, **settings) as (node,), antiphon.connect(node.address) as honest:
        messages = await honest.subscribe("honest").ready()
        await honest.publish("honest", b"before")
        yield node
        await honest.publish("honest", b"after")
        assert await take_values(messages, 2) == [b"before", b"after"]
        await until(lambda: len(node._live.clients) == 1 and len(node._live.host.incoming()) == 1)
        assert node._live.failure is None


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All lines of the log."""
    return "\n".join(LineFormatter().format(record) for record in caplog.records)


# At the door.


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        pytest.param(frames(msgspec.structs.replace(CLIENT, version=2)), "speaks versions 2 to 2", id="wrong version"),
        pytest.param((1 << 31).to_bytes(4, "little"), "announced a frame", id="oversized frame"),
        pytest.param(b"\x05\x00\x00\x00\xff\xff\xff\xff\xff", "no message", id="malformed bytes"),
        pytest.param(b"\x03\x00\x00\x00\x92\x4d\x01", "no message", id="unknown type"),
        pytest.param(frames(CLIENT, CLIENT), "clients do not send", id="second greeting"),
        pytest.param((9000).to_bytes(4, "little"), "at most 8192", id="long greeting"),
    ],
)
def test_who_breaks_the_rules_is_cut_off_with_a_logged_reason(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with attacked() as node, attacking(node) as attacker:
            before = node._live.refused_connections
            attacker.send(sent)
            assert reason in await attacker.refusal()
            assert node._live.refused_connections == before + 1

    running(test)
    assert reason in logged(caplog)


def test_a_greeting_for_another_life_of_the_node_is_refused() -> None:
    """A greeting recorded in an earlier life is of no use in this one; with TLS none is (see test_tls)."""

    async def test() -> None:
        async with attacked() as node, attacking(node) as attacker:
            attacker.send(frames(Hello(PROTOCOL_VERSION, "antiphon", "peer", "127.0.0.1:1", "an earlier life")))
            assert "does not live here any more" in await attacker.refusal()

    running(test)


def test_who_says_nothing_is_cut_off_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with attacked(handshake_seconds=0.2) as node, attacking(node) as attacker:
            assert "has not said who it is in 0.2 seconds" in await attacker.refusal()

    running(test)
    assert "has not said who it is" in logged(caplog)


def test_who_does_not_finish_its_tls_handshake_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with antiphon.start(handshake_seconds=0.2, **ours().node("alpha")) as node:
            for beginning in (b"", b"\x16\x03\x01\x02\x00"):
                async with attacking(node) as attacker:
                    attacker.send(beginning)
                    await attacker.reader.read()
            await until(lambda: node._live.refused_connections == 2)
            async with antiphon.connect(node.address, tls=ours().client("shop")) as client:
                await client.publish("room", b"still there")

    running(test)
    assert "connection refused" in logged(caplog)


@pytest.mark.parametrize(
    ("greeting", "reason"),
    [(b"", "has not said who it is"), (frames(CLIENT), "has not finished a frame")],
    ids=["greeting", "frame"],
)
def test_who_sends_drop_by_drop_is_cut_off(
    greeting: bytes, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "LOOK_SECONDS", 0.05)

    async def test() -> None:
        async with attacked(handshake_seconds=0.1, frame_seconds=0.3) as node, attacking(node) as attacker:
            attacker.send(greeting + (1 << 12).to_bytes(4, "little"))
            # It would go on for as long as it is let.
            while node._live.refused_connections == 0:
                attacker.send(b"x")
                await asyncio.sleep(0.01)

    running(test)
    assert reason in logged(caplog)


def test_a_flood_of_connections_does_not_keep_honest_clients_out(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with attacked() as node:
            place = split_address(node.address)
            opened = [await asyncio.open_connection(*place) for _ in range(STRANGERS_AT_MOST + 150)]
            async with antiphon.connect(node.address) as client:
                await client.publish("room", b"in the middle of it")
            assert len(node._live.host.incoming()) <= STRANGERS_AT_MOST + 2
            # The oldest were cut off to make room.
            assert (await opened[0][0].read())[4:].startswith(b"\x93\x65")
            held = [each for each in node._live.host.incoming() if not each.instance]
            assert sum(each.held_bytes for each in held) <= len(held) * FIRST_BUFFER_BYTES
            for _, writer in opened:
                writer.transport.abort()

    running(test)
    lines = [line for line in logged(caplog).splitlines() if "connection refused" in line]
    assert 0 < len(lines) < 100, "the log is not flooded"


def test_who_connects_while_a_node_is_closed_is_let_go_at_once() -> None:
    """A task that is cancelled before it has begun does nothing for the connection that it was given."""

    async def test() -> None:
        async with antiphon.start() as node:
            server = node._live._server
            assert server is not None
            (bound,) = server._sockets
            with socket.create_connection(bound.getsockname()) as stranger:
                stranger.setblocking(False)
                server._accept(bound)
                server.close()
                assert await asyncio.get_running_loop().sock_recv(stranger, 1) == b""

    running(test)


def test_there_is_a_bound_on_clients() -> None:
    async def test() -> None:
        async with attacked(maximum_clients=3) as node, antiphon.connect(node.address):
            async with antiphon.connect(node.address):
                error = await outcome(antiphon.connect(node.address))
                assert isinstance(error, PeerError) and "as many as it may" in str(error)
            await until(lambda: len(node._live.clients) == 2)
            async with antiphon.connect(node.address):
                pass

    running(test)


def test_long_frames_take_no_more_memory_than_has_come_and_together_no_more_than_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_budget, "LONG_FRAME_BYTES_AT_MOST", 4 << 20)

    async def test() -> None:
        async with attacked() as node, attacking(node) as first, attacking(node) as second:
            for attacker, name in ((first, "first"), (second, "second")):
                client = msgspec.structs.replace(CLIENT, instance=name)
                attacker.send(frames(client) + (30 << 20).to_bytes(4, "little"))
            await until(lambda: len(node._live.clients) == 3)
            assert all(each.held_bytes <= 256 << 10 for each in node._live.host.incoming())
            for attacker in (first, second):
                attacker.send(bytes(3 << 20))
            await until(lambda: node._live.refused_connections >= 1)
            assert sum(each.held_bytes for each in node._live.host.incoming()) <= (4 << 20) + 3 * (256 << 10)

    running(test)


# Clients that were let in.


def test_a_flood_of_topics_is_refused_and_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with attacked(client_topics=5, maximum_topics=8) as node:
            batch = encode_columns(Columns(1, 0, [b"x"]))
            refused = 0
            for number in range(3):
                client = msgspec.structs.replace(CLIENT, instance=f"client-{number}")
                async with attacking(node) as attacker:
                    publishing = [PublishRequest(each, f"t{number}-{each}", "causal", batch) for each in range(20)]
                    attacker.send(frames(client, *publishing))
                    answers = [await attacker.frame() for _ in range(20)]
                    refused += sum(answer[0] == 151 and bool(answer[2]) for answer in answers)
            assert len(node._live.topics) == 8
            assert refused == 60 - 7
            async with attacking(node) as attacker:
                wanted = [SubscribeRequest(each, "honest", "latest", False, "block", 1) for each in range(20)]
                attacker.send(frames(CLIENT, *wanted))
                answers = [await attacker.frame() for _ in range(20)]
                ended = [answer for answer in answers if answer[0] == 154]
                assert len(ended) >= 14 and all("so many subscriptions" in answer[2] for answer in ended)

    running(test)


def test_a_client_that_publishes_more_than_can_be_taken_is_not_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "CLIENT_BYTES_AT_MOST", 1 << 18)
    monkeypatch.setattr(NodeLoop, "room", lambda *_: 0)

    async def test() -> None:
        async with cluster(1) as (node,), attacking(node) as attacker:
            batch = encode_columns(Columns(1, 0, [bytes(1 << 16)]))
            attacker.send(frames(CLIENT, *(PublishRequest(each, "room", "causal", batch) for each in range(1000))))
            await until(lambda: attacker.writer.transport.get_write_buffer_size() > 1 << 20)
            await until(lambda: node._live.clients and held_bytes(node) >= 1 << 18)
            await asyncio.sleep(0.1)
            # What had been read at once when the bound was reached, and no more.
            assert held_bytes(node) <= (1 << 18) + BUFFER_BYTES
            node._live.fail(PeerError("the test is over, and nothing will ever have room"))

    running(test)


def held_bytes(node: Node) -> int:
    """What the only client has waiting."""
    (session,) = node._live.clients
    assert isinstance(session, client_session.ClientSession)
    return session.backlog.bytes


def test_a_client_that_does_not_read_has_a_bound_on_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "UNWRITTEN_BYTES_AT_MOST", 1 << 18)
    monkeypatch.setattr(waiting, "QUEUE_BYTES_AT_MOST", 1 << 20)

    async def test() -> None:
        async with cluster(1) as (node,):
            reader, writer = await asyncio.open_connection(*split_address(node.address), limit=1 << 10)
            writer.write(frames(CLIENT, SubscribeRequest(1, "room", "latest", False, "drop_oldest", 1 << 30)))
            await reader.readexactly(4)
            for _ in range(400):
                await node.publish("room", bytes(1 << 16))
            (session,) = node._live.clients
            assert isinstance(session, client_session.ClientSession)
            await until(lambda: not session.may_write.is_set())
            (remote,) = session._subscriptions.values()
            await until(lambda: remote.subscription.dropped > 0)
            assert session._writer.unwritten_bytes() <= (1 << 18) + (1 << 17)
            assert remote.subscription._waiting.bytes <= 1 << 20
            writer.transport.abort()

    running(test)


def test_a_client_that_asks_without_end_and_reads_no_answer_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with attacked() as node, attacking(node) as attacker:
            attacker.send(frames(CLIENT, *(StatusRequest(each) for each in range(1000))))
            await until(lambda: node._live.refused_connections == 1)

    running(test)
    assert "waited for no answer" in logged(caplog)


def test_what_is_ahead_of_a_client_is_bounded_in_messages_and_bytes() -> None:
    """A batch counts until all of it is taken, and nothing is gained by taking what was never sent."""
    ahead, seen = MessagesInFlight(), []
    for step, sizes in (
        (ahead.sent, (10, client_messages.AHEAD_BYTES)),
        (ahead.taken, (9,)),
        (ahead.taken, (1,)),
        (ahead.sent, (client_messages.AHEAD, 1)),
        (ahead.taken, (1 << 60,)),
        (ahead.sent, (client_messages.AHEAD, 1)),
    ):
        step(*sizes)
        seen.append(ahead.is_full)
    assert seen == [True, True, False, True, False, True]


def test_a_client_that_says_it_has_taken_what_it_was_never_sent_gains_nothing() -> None:
    async def test() -> None:
        async with attacked() as node, attacking(node) as attacker:
            wanted = SubscribeRequest(1, "room", "latest", False, "block", 1)
            attacker.send(
                frames(CLIENT, wanted, MessagesConsumed(1, (1 << 62) - 1), MessagesConsumed(7, 1), StatusRequest(1))
            )
            while (await attacker.frame())[0] != 159:
                pass

    running(test)


def test_large_messages_come_to_a_client_that_takes_its_time() -> None:
    """The bound on bytes slows what is sent, and loses nothing."""

    async def test() -> None:
        async with cluster(1) as (node,), antiphon.connect(node.address) as client:
            messages = await client.subscribe("room").ready()
            for number in range(24):
                await node.publish("room", bytes([number]) * (2 << 20))
            taken = 0
            async for message in messages:
                assert message.value[:1] == bytes([taken])
                taken += 1
                if taken == 24:
                    break
                await asyncio.sleep(0.001)

    running(test)


# Nodes that send what nobody can read.


def wrong_payloads() -> list[tuple[str, bytes]]:
    good = encode_columns(Columns(1, 0, [b"x", b"y"]))
    return [
        ("one byte", b"\x00"),
        ("no columns", b"\x02\x00\x00\x00rubbish"),
        ("more than there are", b"\x03" + good[1:]),
        ("cut", good[:-1]),
        ("no date", encode_columns(Columns(1, 1 << 61, [b"x"]))),
        ("no client", encode_columns(Columns(1, 0, [b"x"]), Author(1 << 63, 1))),
    ]


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_malformed_batch_is_refused_at_the_edge(fabric: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is shown it, no offset moves, and the iterators of subscribers go on."""
    payload = dict(wrong_payloads())["more than there are"]
    settings: dict[str, Any] = {"fabric": fabric, "leave_seconds": 0.2}

    async def test() -> None:
        async with antiphon.start(**settings) as here, antiphon.start(join=[here.address], **settings) as there:
            own = await here.subscribe("room").ready()
            await there.subscribe("room").ready()
            await there.publish("room", b"before")
            assert await take_values(own, 1) == [b"before"]
            offset = here._live.topics["room"].end_offset
            assert there._live.process is not None
            there._live.process.publish(payload, there._live.topics["room"].number, 2)
            there._live.settle()
            await until(lambda: here._live.refused_connections == 1)
            assert here._live.topics["room"].end_offset == offset
            await here.publish("room", b"after")
            assert await take_values(own, 1) == [b"after"]
            assert here._live.failure is None

    running(test)
    assert "has a column of 2 entries" in logged(caplog)


@pytest.mark.parametrize("wrong", [wrong for _, wrong in wrong_payloads()])
def test_what_is_no_batch_is_refused_wherever_it_comes_from(wrong: bytes) -> None:
    with pytest.raises(ProtocolError):
        check_payload(wrong)
    with pytest.raises(ProtocolError):
        check_batches(1, ReplayResponse(1, True, [(0, 1, "causal", wrong)]))
    good = encode_columns(Columns(1, 0, [b"x"]))
    check_batches(1, ReplayResponse(1, True, [(0, 1, "causal", good)]))
    with pytest.raises(ProtocolError, match="'chaos'"):
        check_batches(1, ReplayResponse(1, True, [(0, 1, "chaos", good)]))


def test_a_line_of_the_log_is_one_line_whatever_others_send(caplog: pytest.LogCaptureFixture) -> None:
    logger("x").warning("refused", reason="one\n12:00:00 info node: all is well")
    (record,) = caplog.records
    for formatter in (LineFormatter(), JsonFormatter(), logging.Formatter()):
        assert len(formatter.format(record).splitlines()) == 1
    assert record.getMessage() == r"refused reason='one\n12:00:00 info node: all is well'"
