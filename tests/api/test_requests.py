"""Questions and answers over a topic, between clients and nodes of real clusters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import antiphon
import antiphon.sync
from antiphon import (
    ClosedError,
    Message,
    NobodyServesError,
    Node,
    NoReplyError,
    OverloadedError,
    RequestFailedError,
    UsageError,
)
from antiphon.api.requests.serving import Request, Serving
from antiphon.sync import LoopThread
from tests.node.support import running, until

FABRICS = ("cube", "tree", "gossip")


@asynccontextmanager
async def cluster(fabric: str, count: int = 3) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(antiphon.start(listen="127.0.0.1:0", fabric=fabric))]
        for _ in range(1, count):
            started = antiphon.start(listen="127.0.0.1:0", join=[nodes[0].address], fabric=fabric)
            nodes.append(await stack.enter_async_context(started))
        yield nodes


async def answer(serving: Serving, name: bytes) -> None:
    """Answer all requests: a number by as many replies, everything else by its echo."""
    async for request in serving:
        if request.value.isdigit():
            for number in range(int(request.value)):
                await request.reply(b"%d" % number, more=True)
            await request.end()
        elif request.value == b"wrong":
            await request.fail("there is no such price")
        elif request.value != b"silence":
            await request.reply(name + b":" + request.value, headers=request.headers)


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_request_is_answered_once_and_nobody_sees_the_reply_first(fabric: str) -> None:
    async def test() -> None:
        async with (
            cluster(fabric) as nodes,
            antiphon.connect(nodes[0].address) as asking,
            antiphon.connect(nodes[1].address) as first,
        ):
            seen: list[list[Message]] = [[] for _ in nodes]
            for node, messages in zip(nodes, seen, strict=True):
                await node.subscribe("prices", callback=messages.append).ready()
            with pytest.raises(NobodyServesError, match="nobody serves 'prices'; start a program that does"):
                await asking.request("prices", b"AAPL")
            one, two = await first.serve("prices").ready(), await nodes[2].serve("prices", group="b").ready()
            tasks = [asyncio.create_task(answer(one, b"one")), asyncio.create_task(answer(two, b"two"))]
            replies = [await asking.request("prices", b"AAPL", headers={"lang": b"en"}) for _ in range(8)]
            assert {reply.value for reply in replies} <= {b"one:AAPL", b"two:AAPL"}
            assert all(reply.headers["lang"] == b"en" for reply in replies)
            assert (await asking.request("prices", b"x", group="b")).value == b"two:x"
            # A node asks, too; what has one key goes to one program.
            keyed = {(await nodes[0].request("prices", b"x", key="anna")).value for _ in range(8)}
            assert len(keyed) == 1
            assert [each.value async for each in nodes[1].request_many("prices", b"3")] == [b"0", b"1", b"2"]
            with pytest.raises(RequestFailedError, match="there is no such price"):
                await asking.request("prices", b"wrong")
            with pytest.raises(RequestFailedError, match="without a reply"):
                await asking.request("prices", b"0")
            with pytest.raises(NoReplyError, match=r"no reply on 'prices' within 0\.2 seconds"):
                await asking.request("prices", b"silence", timeout=0.2)
            both = await asyncio.gather(*(asking.request("prices", b"%d?" % number) for number in range(40)))
            assert [reply.value.partition(b":")[2] for reply in both] == [b"%d?" % number for number in range(40)]
            assert {reply.value.partition(b":")[0] for reply in both} == {b"one", b"two"}, "they share the work"
            await until(lambda: all(len(messages) == len(seen[0]) for messages in seen))
            for messages in seen:
                places: dict[bytes, int] = {}
                for place, message in enumerate(messages):
                    if "antiphon-request" in message.headers:
                        places[message.headers["antiphon-request"]] = place
                    else:
                        assert places[message.headers["antiphon-reply"]] < place
                assert len(places) > 50
            await one.close()
            await two.close()
            await asyncio.gather(*tasks)
            with pytest.raises(NobodyServesError):
                await asking.request("prices", b"AAPL", timeout=0.3)

    running(test)


def test_a_request_goes_to_another_program_when_the_first_one_ends_or_falls_silent() -> None:
    async def test() -> None:
        async with cluster("cube") as nodes, antiphon.connect(nodes[0].address) as asking:
            taken: asyncio.Queue[Request] = asyncio.Queue()

            async def keep(serving: Serving) -> None:
                async for request in serving:
                    taken.put_nowait(request)

            # A program that ends in an orderly way says so.
            leaving = await nodes[1].serve("jobs").ready()
            task = asyncio.create_task(keep(leaving))
            reply = asyncio.create_task(asking.request("jobs", b"work", timeout=20))
            assert (await taken.get()).value == b"work"
            staying = await nodes[2].serve("jobs").ready()
            answering = asyncio.create_task(answer(staying, b"staying"))
            await leaving.close()
            assert (await reply).value == b"staying:work"
            # A node that is killed says nothing.
            async with antiphon.start(listen="127.0.0.1:0", join=[nodes[0].address]) as killed:
                await staying.close()
                dying = await killed.serve("jobs").ready()
                other = asyncio.create_task(keep(dying))
                reply = asyncio.create_task(asking.request("jobs", b"more", timeout=20))
                late = await taken.get()
                await killed.abandon()
                again = asyncio.create_task(answer(await nodes[2].serve("jobs").ready(), b"again"))
                assert (await reply).value == b"again:more"
                with pytest.raises(ClosedError):
                    await late.reply(b"too late")
            for each in (task, other, answering, again):
                each.cancel()

    running(test)


def test_a_program_that_works_for_long_keeps_its_request() -> None:
    async def test() -> None:
        async with cluster("cube", 2) as nodes:
            slow, quick = await nodes[0].serve("jobs", group="slow").ready(), await nodes[1].serve("jobs").ready()
            quickly = asyncio.create_task(answer(quick, b"quick"))
            reply = asyncio.create_task(nodes[1].request("jobs", b"work", group="slow", timeout=20))
            request = await anext(aiter(slow))
            await asyncio.sleep(2.5)
            await request.reply(b"done")
            assert (await reply).value == b"done"
            with pytest.raises(UsageError, match="has had its last reply"):
                await request.reply(b"more")
            quickly.cancel()

    running(test)


def test_a_program_without_room_lets_others_answer_and_says_so_if_there_are_none() -> None:
    async def test() -> None:
        async with antiphon.start() as node:
            full = await node.serve("jobs", limit=1).ready()
            first = asyncio.create_task(node.request("jobs", b"one"))
            await until(lambda: len(full._waiting) == 1)
            with pytest.raises(OverloadedError, match="1 programs serve 'jobs', and none has room"):
                await node.request("jobs", b"two")
            other = asyncio.create_task(answer(await node.serve("jobs").ready(), b"other"))
            assert (await node.request("jobs", b"three")).value == b"other:three"
            await full.close()
            assert (await first).value == b"other:one"
            other.cancel()
            with pytest.raises(UsageError, match="do not begin with antiphon-"):
                await node.request("jobs", b"x", headers={"antiphon-to": b"me"})
            with pytest.raises(UsageError, match="a timeout is more than 0"):
                await node.request("jobs", b"x", timeout=0)

    running(test)


def test_programs_without_async_ask_and_answer() -> None:
    thread = LoopThread()

    async def begin() -> Node:
        return await antiphon.start()

    node = thread.run(begin())
    try:
        with antiphon.sync.connect(node.address) as asking, antiphon.sync.connect(node.address) as serving:
            requests = serving.serve("prices")

            def work() -> None:
                for request in requests:
                    request.reply(request.value.upper(), more=True)
                    request.end()
                    if request.value == b"last":
                        return

            worker = threading.Thread(target=work)
            worker.start()
            begun_at = time.monotonic()
            assert asking.request("prices", b"aapl").value == b"AAPL"
            assert [each.value for each in asking.request_many("prices", b"last")] == [b"LAST"]
            assert time.monotonic() - begun_at < 20
            worker.join()
    finally:
        thread.run(node.close())
        thread.stop()
