"""Turns of the event loop: many small frames of one client hold up nobody else, and all of them are handled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.api.batch_codec import encode_columns
from antiphon.api.columns import Columns
from antiphon.node.gateway.client_session import ClientSession
from antiphon.sessions.backlog import CLIENT_BATCHES_AT_MOST
from antiphon.sessions.client_messages import (
    FollowRequest,
    ProducerRequest,
    PublishRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)
from antiphon.transport.turn_share import TurnShare
from tests.node.strangers import frames
from tests.node.support import running, take_values, until
from tests.node.test_tenants import PUBLISH_RESPONSE, attackers, bank, with_tenants


def subscriptions_that_end(number: int) -> tuple[msgspec.Struct, ...]:
    return (
        SubscribeRequest(number, "shop.room", "latest", False, "drop_oldest", 1),
        UnsubscribeRequest(number),
    )


def questions_about_writers(number: int) -> tuple[msgspec.Struct, ...]:
    return (ProducerRequest(number, f"writer-{number}", None, ["shop.room"]),)


def requests_to_follow(number: int) -> tuple[msgspec.Struct, ...]:
    return (FollowRequest(number, "shop.room", {}),)


@pytest.mark.parametrize("made", [subscriptions_that_end, questions_about_writers, requests_to_follow])
def test_others_have_their_turn_among_thousands_of_small_frames(
    tmp_path: Path, made: Callable[[int], tuple[msgspec.Struct, ...]]
) -> None:
    sent = frames(*(message for number in range(3000) for message in made(number)))
    assert len(sent) < 256 << 10, "one read may bring all of them"

    async def test() -> None:
        async with with_tenants(tmp_path) as (node,), bank(node) as honest, attackers(node, 1) as (attacker,):
            await until(lambda: len(node._live.clients) == 2)
            (connection,) = (each for each in node._live.host.incoming() if each.tenant == "shop")
            sessions = [each for each in node._live.clients if isinstance(each, ClientSession)]
            (session,) = (each for each in sessions if each.holder.name == "shop")
            count = 3000 * len(made(0))
            attacker.send(sent)
            await until(lambda: connection.frames_received > 2)
            await honest.publish("bank.room", b"between")
            assert connection.frames_received < count // 2, "the others had their turn"
            most = 0
            while connection.frames_received <= count:
                most = max(most, session.backlog._batches)
                await asyncio.sleep(0)
            # Questions that other nodes answer are not begun without end.
            assert most <= CLIENT_BATCHES_AT_MOST

    running(test)


def test_frames_that_wait_for_a_turn_are_all_handled_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tenants(tmp_path) as (node,), attackers(node, 2) as both:
            messages = await node.subscribe("shop.room").ready()
            for name, attacker in zip("ab", both, strict=True):
                batches = [encode_columns(Columns(1, 0, [f"{name}{each}".encode()])) for each in range(2000)]
                publishing = [
                    PublishRequest(number, "shop.room", "causal", each) for number, each in enumerate(batches)
                ]
                attacker.send(frames(*publishing))
            taken = [value.decode() for value in await take_values(messages, 4000)]
            for name in "ab":
                assert [each for each in taken if each[0] == name] == [f"{name}{number}" for number in range(2000)]
            account = node._live.ledger.account("shop", node._live.rights._clients["shop"].quotas)
            assert account.turns.postponed > 0

    running(test)


@pytest.mark.parametrize("has_log", [False, True], ids=["without a log", "with a log"])
def test_publishes_on_one_topic_are_answered_in_their_order(tmp_path: Path, has_log: bool) -> None:
    """Those on different topics may pass each other, and a refusal passes those that are not accepted yet."""
    data: dict[str, Any] = {"data": str(tmp_path / "log")} if has_log else {}

    async def test() -> None:
        async with with_tenants(tmp_path, **data) as (node,), attackers(node, 1) as (attacker,):
            batch = encode_columns(Columns(1, 0, [b"x"]))
            topics = ("shop.a", "shop.b", "shop.c")
            publishing = [PublishRequest(number, topics[number % 3], "causal", batch) for number in range(1500)]
            attacker.send(frames(*publishing))
            answered: list[int] = []
            while len(answered) < 1500:
                frame = await attacker.frame()
                if frame[0] == PUBLISH_RESPONSE:
                    assert frame[2] == ""
                    answered.append(frame[1])
            for place in range(3):
                of_one = [number for number in answered if number % 3 == place]
                assert of_one == sorted(of_one) and len(of_one) == 500
            assert len(node._live.clients) == 1

    running(test)


class Busy:
    """A connection whose frames take as long as they may, several times over."""

    def __init__(self, share: TurnShare, name: str, turns: list[str], count: int) -> None:
        self._share, self._name, self._turns, self._left = share, name, turns, count

    def go_on(self) -> None:
        self._share.begin()
        until_seconds = self._share.ends
        while time.perf_counter() < until_seconds:
            pass
        self._turns.append(self._name)
        self._share.end()
        self._left -= 1
        if self._left:
            self._share.wait(self)


def test_connections_of_one_identity_take_turns_and_others_come_between() -> None:
    async def test() -> None:
        share, turns = TurnShare(), list[str]()
        for name in "ab":
            share.wait(Busy(share, name, turns, 3))
        between = 0
        while len(turns) < 6:
            await asyncio.sleep(0)
            between += 1
        assert turns == ["a", "b"] * 3
        assert between == 6, "one turn for each, and nothing is scheduled twice"

    running(test)
