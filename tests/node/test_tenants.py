"""Attackers with a token: what they use up is their own, and honest clients do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon import Node
from antiphon.api.batch_codec import decode_columns, encode_columns
from antiphon.api.columns import BATCH_MESSAGES_AT_MOST, Columns
from antiphon.client.remote_log import RemoteLog
from antiphon.kernel.errors import ProtocolError
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.node.acl import new_token, token_hash
from antiphon.sessions.client_messages import (
    FollowRequest,
    FollowResponse,
    LaneOf,
    LogsRequest,
    PublishRequest,
    Resume,
    SubscribeRequest,
)
from antiphon.storage.log import DurableLog
from antiphon.transport import frame_budget
from tests.node.strangers import Attacker, attacking, frames
from tests.node.support import cluster, running, take_values, until

SHOP, BANK = new_token(), new_token()
CLIENTS = f"""
[clients.shop]
token = "{token_hash(SHOP)}"
publish = ["shop.>"]
subscribe = ["shop.>"]

[clients.bank]
token = "{token_hash(BANK)}"
publish = ["bank.>"]
subscribe = ["bank.>"]
"""
HELLO = Hello(PROTOCOL_VERSION, "antiphon", "attacker", "", token=SHOP)


@asynccontextmanager
async def with_tenants(place: Path, count: int = 1, quotas: str = "", **settings: Any) -> AsyncIterator[list[Node]]:
    """Nodes with two tenants; only ``shop``, which attacks, has quotas."""
    path = place / "rights.toml"
    path.write_text(CLIENTS + (f"[clients.shop.quotas]\n{quotas}\n" if quotas else ""))
    async with cluster(count, rights=str(path), insecure=True, **settings) as nodes:
        yield nodes
        assert all(node._live.failure is None for node in nodes)


@asynccontextmanager
async def attackers(node: Node, count: int) -> AsyncIterator[list[Attacker]]:
    """Connections of the tenant that attacks."""
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(attacking(node)) for _ in range(count)]
        for number, attacker in enumerate(found):
            attacker.send(frames(msgspec.structs.replace(HELLO, instance=f"attacker-{number}")))
        yield found


def bank(node: Node) -> Any:
    """An honest client, which is not to be refused: it would fail at once."""
    return antiphon.connect(node.address, token=BANK, reconnect_seconds=0.0)


def test_stalled_frames_of_a_tenant_harm_nobody_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Four of the attackers use all of it up.
    monkeypatch.setattr(frame_budget, "LONG_FRAME_BYTES_AT_MOST", 4 * ((2 << 20) + 4))

    async def test() -> None:
        async with with_tenants(tmp_path, 2, frame_seconds=2.0) as (node, other), attackers(node, 11) as stalled:
            for attacker in stalled:
                attacker.send((2 << 20).to_bytes(4, "little") + bytes(3 << 19))
            await until(lambda: len(node._live.clients) >= 4)
            async with bank(node) as near, bank(other) as far:
                messages = await far.subscribe("bank.room").ready()
                for _ in range(20):
                    # The budget of clients is used up by the attackers; these frames take their part of it.
                    await near.publish("bank.room", bytes(600_000))
                assert [len(value) for value in await take_values(messages, 20)] == [600_000] * 20
                await until(lambda: len(node._live.clients) == 1)
                assert all(each.held_bytes == 0 for each in node._live.host.incoming())

    running(test)


TOPICS = [f"shop.{number}" for number in range(20)]


async def fill_log(node: Node) -> None:
    """Put a message on each topic of the attacker, and of the honest client."""
    for topic in [*TOPICS, "bank.room"]:
        await node.publish(topic, b"one")


def test_a_request_for_millions_of_log_positions_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tenants(tmp_path, data=str(tmp_path / "log")) as (node,), attackers(node, 1) as (attacker,):
            await fill_log(node)
            attacker.send(frames(LogsRequest(1, TOPICS, tuple(range(200_000)))))
            answer = await attacker.frame()
            assert "4000020 positions; ask for at most" in answer[7]

    running(test)


def test_requests_for_log_positions_wait_for_nobody_and_end_with_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [0]
    offset_at = DurableLog.offset_at

    def counted(store: DurableLog, topic: str, time_us: int) -> int:
        found[0] += 1
        return offset_at(store, topic, time_us)

    monkeypatch.setattr(DurableLog, "offset_at", counted)

    async def test() -> None:
        async with with_tenants(tmp_path, data=str(tmp_path / "log")) as (node,), bank(node) as honest:
            await fill_log(node)
            async with attackers(node, 1) as (attacker,):
                for number in range(16):
                    attacker.send(frames(LogsRequest(number, TOPICS, tuple(range(13_000)))))
                await until(lambda: found[0] > 0)
                logs = await RemoteLog(honest._live).topics(["bank.room"], [0])
                assert logs.topics[0].end == 1
                assert found[0] < 13_000, "the others had their turn"
            await until(lambda: len(node._live.clients) == 1)
            before = found[0]
            await asyncio.sleep(0.2)
            assert found[0] <= before + 64, "nobody waits for the answers"

    running(test)


SUBSCRIPTION_ENDED, PUBLISH_RESPONSE = 154, 151
OBJECTS_OF_A_BATCH = 500
FOLLOW_RESPONSE: Any = FollowResponse.__struct_config__.tag
TOPIC_LIST = {author: [1 << 40] for author in range(1, 8001)}


def resuming(number: int, lists: dict[str, dict[int, list[int]]]) -> bytes:
    """A subscription that resumes."""
    return frames(SubscribeRequest(number, "shop.>", "latest", False, "block", 100, Resume(0, lists)))


async def answer(attacker: Attacker, tag: int) -> list[Any]:
    """The next answer of a kind."""
    while (frame := await attacker.frame())[0] != tag:
        pass
    return frame


def test_a_request_that_is_longer_than_any_honest_one_ends_its_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tenants(tmp_path) as (node,), attackers(node, 1) as (attacker,), bank(node) as honest:
            attacker.send(resuming(1, {f"shop.{number}": TOPIC_LIST for number in range(100)}))
            assert "a request of" in await attacker.refusal()
            await honest.publish("bank.room", b"unharmed")

    running(test)


def test_lists_of_what_was_seen_are_kept_packed_and_have_a_bound(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tenants(tmp_path) as (node,), attackers(node, 1) as (attacker,), bank(node) as honest:
            for number in range(12):
                # 80,000 numbers of nine bytes each, and as many of authors.
                attacker.send(resuming(number, {f"shop.{topic}": TOPIC_LIST for topic in range(25)}))
            ended = await answer(attacker, SUBSCRIPTION_ENDED)
            assert "bytes of what it has seen" in ended[2]
            account = node._live.ledger.account("shop", node._live.rights._clients["shop"].quotas)
            assert 1 << 20 < account.memory_bytes <= 16 << 20
            attacker.writer.transport.abort()
            await until(lambda: account.memory_bytes == 0)
            await honest.publish("bank.room", b"unharmed")

    running(test)


def test_requests_to_follow_count_towards_the_memory_of_their_identity(tmp_path: Path) -> None:
    """Each names thousands of batches that never come: the node waits for them for half a minute."""

    async def test() -> None:
        quotas = "memory = 2000000"
        async with with_tenants(tmp_path, quotas=quotas) as (node,), attackers(node, 1) as (attacker,):
            past = dict.fromkeys(range(1, 8001), 1 << 40)
            attacker.send(frames(*(FollowRequest(number, "shop.follow", past) for number in range(40))))
            refused = await answer(attacker, FOLLOW_RESPONSE)
            assert "quota memory" in refused[3] and refused[5] == "QuotaError"
            account = node._live.ledger.account("shop", node._live.rights._clients["shop"].quotas)
            assert 1_000_000 < account.memory_bytes <= 2_000_000
            attacker.writer.transport.abort()
            await until(lambda: account.memory_bytes == 0)

    running(test)


def test_a_quota_of_memory_ends_subscriptions_that_are_never_read_and_counts_their_objects(tmp_path: Path) -> None:
    async def test() -> None:
        quotas = "memory = 2000000"
        async with with_tenants(tmp_path, quotas=quotas) as (node,), attackers(node, 1) as (attacker,):
            wanted = [SubscribeRequest(each, "shop.room", "latest", False, "block", 1 << 20) for each in range(20)]
            attacker.send(frames(*wanted))
            await until(lambda: len(node._live.subscriptions._ready) == 20)
            account = node._live.ledger.account("shop", node._live.rights._clients["shop"].quotas)
            # It takes nothing: some thousand are ahead of it, and then they wait in all twenty subscriptions.
            for _ in range(18_400):
                node.publish("shop.room", b"", order="none")
                await node.flush()
                if account.hits["memory"]:
                    break
            assert account.hits["memory"] > 0
            waiting: Any = node._live.subscriptions._ready
            assert sum(len(each._waiting.entries) for each in waiting) * OBJECTS_OF_A_BATCH <= 2_000_000
            ended = await answer(attacker, SUBSCRIPTION_ENDED)
            assert "quota memory" in ended[2] and ended[5] == "QuotaError"
            assert account.memory_bytes <= 2_000_000

    running(test)


def test_a_batch_has_a_bound_on_its_messages_and_headers_before_it_is_decoded() -> None:
    many = BATCH_MESSAGES_AT_MOST + 1
    with pytest.raises(ProtocolError, match="length <= 131072"):
        decode_columns(encode_columns(Columns(1, 0, [b""] * many)))
    with pytest.raises(ProtocolError, match="length <= 131072"):
        decode_columns(encode_columns(Columns(1, 0, [b""], keys=[None] * many)))
    headers = {f"{number:x}": b"" for number in range(60_000)}
    with pytest.raises(ProtocolError, match="300000 headers"):
        decode_columns(encode_columns(Columns(1, 0, [b""] * 5, headers=[headers] * 5)))
    whole = Columns(1, 0, [bytes(300_000)] * 4, headers=[headers, None, {}, {"a": b"b"}])
    assert decode_columns(encode_columns(whole)) == whole


def test_millions_of_empty_messages_in_one_batch_are_refused_to_their_publisher(tmp_path: Path) -> None:
    count = 3_000_000
    values = b"\xdd" + count.to_bytes(4, "big") + b"\xc4\x00" * count
    payload = count.to_bytes(4, "little") + b"\x93\x01\x00" + values

    async def test() -> None:
        async with with_tenants(tmp_path) as (node,), attackers(node, 1) as (attacker,):
            attacker.send(frames(PublishRequest(1, "shop.room", "causal", payload)))
            refused = await answer(attacker, PUBLISH_RESPONSE)
            assert "length <= 131072" in refused[2]

    running(test)


def test_series_of_writers_have_a_quota_and_others_write_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tenants(tmp_path, quotas="series = 3") as (node,), attackers(node, 1) as (attacker,):
            batch = encode_columns(Columns(1, 0, [b"x"]))
            for lane in range(5):
                written = LaneOf("junk", lane, 7, 0)
                attacker.send(frames(PublishRequest(lane, "shop.room", "causal", batch, serial=1, lane=written)))
            answers = sorted([await answer(attacker, PUBLISH_RESPONSE) for _ in range(5)])
            assert [each[2] for each in answers[:3]] == [""] * 3
            assert all("quota series" in each[2] and each[5] == "QuotaError" for each in answers[3:])
            async with bank(node) as honest:
                await honest.publish("bank.room", b"unharmed")

    running(test)
