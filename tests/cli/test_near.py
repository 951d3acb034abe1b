"""``antiphon node --identifier`` and ``--near``: newcomers that ask for an identifier."""

from __future__ import annotations

import asyncio

import pytest

import antiphon
from antiphon.cli.places.nearby import measured, with_near_identifier
from antiphon.kernel.errors import UsageError
from antiphon.node.settings import Settings
from tests.cli.local_nodes import ended, first_line, started


def test_nodes_get_the_identifiers_that_they_ask_for_through_any_node() -> None:
    async def run() -> None:
        async with (
            antiphon.start() as founder,
            antiphon.start(join=[founder.address], identifier=6) as six,
            antiphon.start(join=[six.address], identifier=3) as three,
            antiphon.start(join=[three.address], identifier=6) as late,
        ):
            assert [node.identifier for node in (founder, six, three)] == [0, 6, 3]
            assert late.identifier not in (0, 3, 6)
            room = await late.subscribe("room").ready()
            for number, node in enumerate((founder, six, three)):
                await node.publish("room", b"%d" % number, order="causal")
            heard = []
            async with asyncio.timeout(90):
                async for message in room:
                    heard.append(message.value)
                    if len(heard) == 3:
                        break
            assert sorted(heard) == [b"0", b"1", b"2"]

    antiphon.run(run())


def test_a_newcomer_measures_all_nodes_and_asks_for_a_free_identifier() -> None:
    async def run() -> None:
        async with antiphon.start() as founder, antiphon.start(join=[founder.address]) as other:
            found = await measured({0: founder.address, 1: other.address, 2: "127.0.0.1:1"})
            assert found.keys() == {0, 1}
            assert all(0 < microseconds < 60_000_000 for microseconds in found.values())
            settings = await with_near_identifier(Settings(join=[other.address]).checked())
            assert settings.identifier is not None and settings.identifier not in (0, 1)
            async with antiphon.start(settings) as near:
                assert near.identifier == settings.identifier

    antiphon.run(run())


def test_where_nobody_answers_a_newcomer_has_no_wish() -> None:
    settings = Settings(join=["127.0.0.1:1"]).checked()
    assert antiphon.run(with_near_identifier(settings)) == settings
    with pytest.raises(UsageError, match="a tree has other neighbours"):
        antiphon.run(with_near_identifier(Settings(fabric="tree", join=["127.0.0.1:1"])))


def test_the_command_asks_for_an_identifier() -> None:
    with started("node", "--json", "--listen", "127.0.0.1:0") as founder:
        address = first_line(founder)["address"]
        with started("node", "--json", "--join", address, "--identifier", 5) as node:
            assert first_line(node)["node"] == 5
            with started("node", "--json", "--join", address, "--near") as near:
                assert 0 < first_line(near)["node"] < 32
                assert ended(near)[0] == 0
            assert ended(node)[0] == 0
        assert ended(founder)[0] == 0


def test_an_identifier_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="identifier is from 0 to 16383, not 99999"):
        Settings(identifier=99_999).checked()
