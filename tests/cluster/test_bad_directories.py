"""Mistakes with data directories, addresses and founders: refused with a sentence that says what to do."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import JoinError, PeerError, UsageError
from antiphon.node.local_cluster import free_addresses
from tests.cluster.returning import total_works
from tests.node.support import running, subscribed, take_values


def founder(addresses: list[str], place: int, directory: Path, **settings: Any) -> Any:
    """A founder of a tree with its data directory."""
    table = directory / f"tree {place}.toml"
    listed = ", ".join(f'"{address}"' for address in addresses)
    table.write_text(f"[tree]\nbrokers = [{listed}]\npatience_seconds = 0.1\n")
    chosen = {"listen": addresses[place], "data": str(directory / f"data {place}"), "leave_seconds": 0.3, **settings}
    return antiphon.start(fabric="tree", tree=str(table), **chosen)


async def refused(begun: Any) -> None:
    """A broker cannot begin, or stops by itself, and says why."""
    with pytest.raises(PeerError, match="copied or backed up; start that one with an empty data directory"):
        await until_it_stops(begun)


async def until_it_stops(begun: Any) -> None:
    """Use a node until it says why it cannot be used."""
    async with begun as node:
        while True:
            await node.publish("room", b"?")
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("fabric", ["cube", "gossip"])
def test_a_copy_of_the_data_directory_of_a_running_node(tmp_path: Path, fabric: str) -> None:
    async def test() -> None:
        async with antiphon.start(fabric=fabric, data=str(tmp_path / "first")) as first:
            async with antiphon.start(fabric=fabric, join=[first.address], data=str(tmp_path / "second")):
                pass
            shutil.copytree(tmp_path / "second", tmp_path / "copy")
            original = antiphon.start(fabric=fabric, join=[first.address], data=str(tmp_path / "second"))
            async with original as second:
                for asked in (second, first):
                    begun = antiphon.start(fabric=fabric, join=[asked.address], data=str(tmp_path / "copy"))
                    with pytest.raises(
                        PeerError, match=r"has a copy; stop one of them, and start it with an empty data"
                    ):
                        await until_it_stops(begun)
                [subscription] = await subscribed([first])
                await second.publish("room", b"still here")
                assert b"still here" in await take_values(subscription, 1)

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "gossip"])
def test_an_address_at_which_another_node_lives(fabric: str) -> None:
    """That of the node that is asked for a place, and that of a third one."""

    async def test() -> None:
        async with (
            antiphon.start(fabric=fabric) as first,
            antiphon.start(fabric=fabric, join=[first.address]) as second,
        ):
            for taken in (first.address, second.address):
                begun = antiphon.start(fabric=fabric, join=[first.address], advertise=taken, join_seconds=2.0)
                with pytest.raises(JoinError, match=rf"another node lives at {taken}, .*; give each node an address"):
                    await until_it_stops(begun)
            [subscription] = await subscribed([first])
            await second.publish("room", b"still here")
            assert await take_values(subscription, 1) == [b"still here"]

    running(test)


def test_an_old_copy_of_the_data_directory_of_a_broker(tmp_path: Path) -> None:
    """A backup that was made before the last start, and a copy that runs beside the broker."""

    async def test() -> None:
        *addresses, elsewhere = free_addresses(4)
        async with AsyncExitStack() as stack:
            begun = [founder(addresses, place, tmp_path) for place in range(3)]
            first, _, last = await asyncio.gather(*(stack.enter_async_context(each) for each in begun))
            await last.close()
            shutil.copytree(tmp_path / "data 2", tmp_path / "backup")
            last = await stack.enter_async_context(founder(addresses, 2, tmp_path))
            await total_works(first)
            await refused(founder(addresses, 2, tmp_path, listen=elsewhere, data=str(tmp_path / "backup")))
            await total_works(last)
            await last.close()
            # Also when it is started once more.
            await refused(founder(addresses, 2, tmp_path, data=str(tmp_path / "backup")))
            last = await stack.enter_async_context(founder(addresses, 2, tmp_path))
            await total_works(last)

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "gossip"])
def test_the_data_directory_of_another_cluster(tmp_path: Path, fabric: str) -> None:
    async def test() -> None:
        async with antiphon.start(fabric=fabric, cluster="one", data=str(tmp_path / "data")) as node:
            await node.publish("room", b"kept")
        with pytest.raises(JoinError, match=r"belongs to the cluster 'one' .*; start it with its own data directory"):
            async with antiphon.start(fabric=fabric, cluster="two", data=str(tmp_path / "data")):
                pass
        async with antiphon.start(fabric=fabric, cluster="one", data=str(tmp_path / "data")):
            pass

    running(test)


def test_the_data_directory_of_another_tree(tmp_path: Path) -> None:
    """Both trees have the same name, and the directory has the identity of a broker that this tree has, too."""

    async def test() -> None:
        trees = [tmp_path / "one", tmp_path / "other"]
        addresses = [free_addresses(2), free_addresses(2)]
        for tree, listed in zip(trees, addresses, strict=True):
            tree.mkdir()
            async with AsyncExitStack() as stack:
                begun = [founder(listed, place, tree) for place in range(2)]
                first, _ = await asyncio.gather(*(stack.enter_async_context(each) for each in begun))
                await total_works(first)
        foreign = founder(addresses[0], 1, trees[0], data=str(trees[1] / "data 1"))
        with pytest.raises(
            JoinError, match=r"belongs to the tree of the brokers at .*; start it with its own data dir"
        ):
            await until_it_stops(foreign)
        for tree, listed in zip(trees, addresses, strict=True):
            async with founder(listed, 0, tree) as first, founder(listed, 1, tree):
                await total_works(first)

    running(test)


def test_lists_of_founders_that_contradict_themselves_or_each_other(tmp_path: Path) -> None:
    async def test() -> None:
        one, other, third = free_addresses(3)
        with pytest.raises(UsageError, match="each broker of a tree has an address of its own; correct brokers"):
            founder([one, one], 0, tmp_path)
        with pytest.raises(UsageError, match=r"is not among the brokers of the tree .*; listen at or advertise one"):
            async with founder([one, other], 0, tmp_path, listen=third):
                pass
        first = founder([one, other], 0, tmp_path, join_seconds=1.0)
        second = founder([one, other, third], 1, tmp_path, join_seconds=1.0)
        for error in await asyncio.gather(first.__aenter__(), second.__aenter__(), return_exceptions=True):
            assert isinstance(error, JoinError)
            assert "give all founders the same list, in the same order" in str(error)

    running(test)
