"""Receipts mean the same at every node, and nothing that was refused stays hidden."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import ClosedError, DeniedError, Message, PeerError, Receipt
from antiphon.client.connection import ClientConnection
from antiphon.node.local_cluster import free_addresses
from antiphon.sessions.client_messages import PublishResponse
from tests.node.support import child, cluster, running, take_exactly, tree, until
from tests.node.test_rights import GUEST, SHOP, client_of, guarded


def receipt_of(message: Message) -> Receipt:
    return Receipt(message.topic, message.author, message.author_sequence)


@pytest.mark.parametrize("fabric", ["cube", "gossip", "tree"])
def test_subscribers_everywhere_see_what_the_receipt_says(fabric: str) -> None:
    async def test() -> None:
        nodes_of = tree(3) if fabric == "tree" else cluster(3, fabric=fabric)
        async with (
            nodes_of as nodes,
            antiphon.connect(nodes[0].address) as anna,
            antiphon.connect(nodes[1].address) as ben,
        ):
            heard = [await node.subscribe("room").ready() for node in nodes]
            own = await ben.subscribe("room").ready()
            receipts: dict[bytes, Receipt] = {}
            publishers = (anna, ben, nodes[0], nodes[2])
            for number in range(6):
                asked = {
                    b"%d %d %d" % (number, place, index): publisher.publish(
                        "room", b"%d %d %d" % (number, place, index)
                    )
                    for place, publisher in enumerate(publishers)
                    for index in range(3)
                }
                receipts |= dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
            assert len(set(receipts.values())) == len(receipts) == 72
            assert len({receipt.author for receipt in receipts.values()}) == 4
            for subscription in (*heard, own):
                messages = await take_exactly(subscription, 72)
                assert {message.value: receipt_of(message) for message in messages} == receipts

    running(test)


def test_receipts_stay_the_same_when_a_client_changes_its_node(tmp_path: Path) -> None:
    """What was handed in at two nodes is accepted once, under the number that it had from the start."""
    count = 200

    async def test() -> None:
        async with cluster(3) as nodes, child("serve", f"join={nodes[0].address}") as doomed:
            heard = await nodes[1].subscribe("room").ready()
            async with antiphon.connect([doomed.address, nodes[2].address]) as client:
                receipts: list[Receipt] = []
                for number in range(count):
                    asked = [client.publish("room", b"%d %d" % (number, index)) for index in range(2)]
                    if number == count // 2:
                        await doomed.kill()
                    receipts += await asyncio.gather(*asked)
                assert client.reconnects == 1
                assert [receipt.sequence for receipt in receipts] == list(range(1, 2 * count + 1))
                messages = await take_exactly(heard, 2 * count)
                assert [receipt_of(message) for message in messages] == receipts
                assert len({message.publisher for message in messages}) == 2

    running(test)


def test_flush_raises_what_publishes_met_and_says_how_many(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "rights.toml") as node:
            async with client_of(node, SHOP) as shop:
                for number in range(8):
                    shop.publish("shop" if number < 3 else "prices.euro", b"%d" % number)
                with pytest.raises(
                    DeniedError, match=r"^5 of 8 messages .* not accepted: client 'shop' may not publish"
                ):
                    await shop.flush()
                shop.publish("shop", b"again")
                await shop.flush()
                with pytest.raises(DeniedError, match=r"^client 'shop' may not publish"):
                    await shop.publish("prices.euro", b"awaited")
                await shop.flush()
            shop = await client_of(node, SHOP)
            shop.publish("prices.euro", b"")
            with pytest.raises(DeniedError, match=r"^1 of 1 messages"):
                await shop.close()

            async def work() -> None:
                async with client_of(node, GUEST) as guest:
                    guest.publish("shop", b"")
                    guest.publish("shop", b"")

            with pytest.raises(DeniedError, match=r"^2 of 2 messages"):
                await work()

    running(test)


def test_an_error_of_the_work_is_not_replaced_by_refusals(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "rights.toml") as node:

            async def work() -> None:
                async with client_of(node, GUEST) as guest:
                    guest.publish("shop", b"")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await work()
        assert "messages were not accepted" in caplog.text

    running(test)


def test_clients_with_a_name_have_the_author_under_which_they_publish(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "rights.toml") as node, client_of(node, SHOP) as shop:
            heard = await node.subscribe("shop").ready()
            receipt = await shop.publish("shop", b"")
            assert [receipt_of(message) for message in await take_exactly(heard, 1)] == [receipt]

    running(test)


def test_what_is_lost_with_the_last_node_is_told_by_flush_and_close() -> None:
    async def test() -> None:
        async with child("serve") as doomed:
            client = await antiphon.connect(doomed.address, reconnect_seconds=0)
            await client.publish("room", b"")
            doomed.process.send_signal(signal.SIGSTOP)
            for _ in range(3):
                client.publish("room", b"")
            await doomed.kill()
            with pytest.raises(ClosedError, match=r"^3 of 4 messages"):
                await client.close()
            await client.close()

    running(test)


def test_a_node_tells_of_messages_that_lost_their_place() -> None:
    """As in a part of gossip that others went on without."""

    async def test() -> None:
        async with antiphon.start(fabric="gossip") as node:
            await node.publish("room", b"")
            outbox = node._live.outboxes["room"]
            await until(lambda: len(outbox) == 0)
            lost = outbox.post(b"lost", True)
            assert not lost.done()
            outbox.fail(PeerError("others went on without this node"))
            with pytest.raises(PeerError, match=r"^1 of 2 messages .* others went on"):
                await node.flush()
            outbox.failure = None

    running(test)


def test_a_refusal_that_comes_late_counts_for_the_flush_that_waits_for_it() -> None:
    async def test() -> None:
        async with antiphon.start() as node, antiphon.connect(node.address) as client:
            await client.publish("room", b"")
            (session,) = node._live.clients
            receive = client._live.frame_received
            held: list[PublishResponse] = []

            def hold(connection: ClientConnection, frame: memoryview) -> None:
                message = client._live._codec.decode(frame)
                if isinstance(message, PublishResponse) and not message.error:
                    held.append(message)
                else:
                    receive(connection, frame)

            client._live.frame_received = hold  # type: ignore[method-assign]
            client.publish("room", b"late")
            flushing = asyncio.create_task(client.flush())
            await until(lambda: held)
            assert not flushing.done()
            session.send(PublishResponse(held[0].number, "no room"))  # type: ignore[attr-defined]
            node._live.settle()
            with pytest.raises(PeerError, match=r"^1 of 2 messages .* no room"):
                await flushing

    running(test)


def test_a_broker_that_returns_uses_no_number_twice(tmp_path: Path) -> None:
    """It has its identifier again, and its program counts its messages from the start."""

    async def test() -> None:
        addresses = free_addresses(3)

        def broker(place: int) -> Any:
            table = {"brokers": addresses}
            return antiphon.start(fabric="tree", tree=table, listen=addresses[place], data=str(tmp_path / str(place)))

        nodes = list(await asyncio.gather(*(broker(place) for place in range(3))))
        heard = await nodes[0].subscribe("room").ready()
        receipts = [await nodes[1].publish("room", b"before") for _ in range(2)]
        await nodes[1].close()
        nodes[1] = await broker(1)
        receipts += [await nodes[1].publish("room", b"after") for _ in range(2)]
        assert {receipt.author for receipt in receipts} == {1} and len(set(receipts)) == 4
        messages = await take_exactly(heard, 4)
        assert [receipt_of(message) for message in messages] == receipts
        assert len({(message.publisher, message.sequence) for message in messages}) == 4
        assert [receipt.sequence for receipt in receipts] == sorted(receipt.sequence for receipt in receipts)
        await asyncio.gather(*(node.close() for node in nodes))

    running(test)
