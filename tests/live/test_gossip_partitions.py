"""Gossip on real sockets whose connections are cut, and come back: nothing is lost for good, and nothing overtakes."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Node
from tests.live.proxy import behind_proxies
from tests.live.support import exact_values, running, subscribed, until


def links_of(node: Node) -> int:
    """How many others a node is connected with."""
    return sum(1 for link in node.cluster.links.values() if link.is_connected)


@pytest.mark.parametrize("parted", [(4,), (0,), (0, 1, 2, 3, 4)], ids=["one", "who all came through", "everybody"])
def test_who_was_cut_off_gets_what_the_others_said_and_they_what_it_said(parted: tuple[int, ...]) -> None:
    async def test() -> None:
        async with behind_proxies(5, fabric="gossip") as (nodes, proxies):
            subscriptions = await subscribed(nodes)
            await nodes[2].publish("room", b"before")
            assert [await exact_values(each, 1) for each in subscriptions] == [[b"before"]] * 5
            for place in parted:
                proxies[place].cut()
            for node in nodes:
                await node.publish("room", b"alone %d" % node.identifier, order="causal")
            await asyncio.sleep(0.3)
            for place in parted:
                proxies[place].mend()
            await nodes[0].publish("room", b"after", order="causal")
            values = [await exact_values(each, 6) for each in subscriptions]
            assert all(sorted(each) == sorted(values[0]) for each in values)
            own = b"alone %d" % nodes[0].identifier
            assert all(each.index(own) < each.index(b"after") for each in values)
            await until(lambda: all(links_of(node) > 0 for node in nodes))

    running(test)
