"""What a client tells its node about the messages that its application has taken."""

from __future__ import annotations

import asyncio

import antiphon
from antiphon.client.client_subscriptions import TELL_SECONDS
from tests.node.support import running, until

MESSAGES = 200


def test_a_client_does_not_tell_its_node_of_every_message_that_is_taken_alone() -> None:
    """Nobody waits for that word, so messages that follow each other closely share one; the last has one too."""

    async def test() -> None:
        async with antiphon.start() as node, antiphon.connect(node.address) as client:
            messages = aiter(await client.subscribe("room").ready())
            connection, opened = client._live._connection, next(iter(client._live._subscriptions._of.values()))
            assert connection is not None
            writer, loop = connection.writer, asyncio.get_running_loop()
            began, told = loop.time(), int(writer.frames_sent)
            for number in range(MESSAGES):
                await node.publish("room", b"%d" % number)
                assert (await anext(messages)).value == b"%d" % number
            assert int(writer.frames_sent) - told <= (loop.time() - began) / TELL_SECONDS + 2
            await until(lambda: opened.untold == 0)

    running(test)
