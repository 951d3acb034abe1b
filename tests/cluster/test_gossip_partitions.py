"""Gossip on real sockets whose connections are cut, and come back: nothing is lost for good, and nothing overtakes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import antiphon
from antiphon import Node
from antiphon.fabrics.gossip import Brisa
from antiphon.fabrics.gossip.topic import Group
from tests.cluster.proxy import behind_proxies
from tests.node.support import exact_values, running, subscribed, until


def links_of(node: Node) -> int:
    """How many others a node is connected with."""
    return sum(1 for link in node._live.host.links.values() if link.is_connected)


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


def group_of(node: Node) -> Group:
    """What a node knows of the topic."""
    assert isinstance(node._live.process, Brisa)
    return node._live.process.group(node._live.topic("room").number)


def longest_buffer(node: Node) -> int:
    """How many batches of a publisher a node keeps for others."""
    return max(len(stream.kept) for stream in group_of(node).streams.values())


def test_what_is_in_no_buffer_any_more_comes_from_a_log(tmp_path: Path) -> None:
    """Far more is published while one is cut off than others keep for it; nobody is told of a gap."""
    count, table = 200, dict[str, float](keep=4, buffer=4)

    async def test() -> None:
        async with behind_proxies(3, fabric="gossip", gossip=table, window=4) as (nodes, proxies):
            join = [proxies[0].address]
            async with antiphon.start(fabric="gossip", gossip=table, window=4, join=join, data=str(tmp_path)) as keeper:
                together = [nodes[0], nodes[1], keeper]
                subscription, *others = await subscribed([nodes[2], *together])
                proxies[2].cut()
                # It may find a way out to the others before they have published all.
                lost = nodes[2].identifier
                await until(lambda: not any(group_of(node).sampling.is_neighbour(lost) for node in together))
                for number in range(count):
                    await nodes[number % 2].publish("room", b"%d" % number, order="causal")
                    # Each is a batch of its own.
                    await nodes[number % 2].flush()
                for other in others:
                    assert len(await exact_values(other, count)) == count
                await until(lambda: all(longest_buffer(node) <= table["buffer"] for node in together))
                proxies[2].mend()
                assert len(await exact_values(subscription, count)) == count
                assert subscription.gaps == 0

    running(test)
