"""A client that claims the session of another one: it is told what to do, and the other one loses nothing."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

import antiphon
from antiphon import Client, PeerError
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.node.acl import new_token, token_hash
from tests.node.strangers import attacking, frames
from tests.node.support import running, take_values

IN_USE = (
    "this session is in use by another connection; if it was yours, connect again in some seconds, "
    "otherwise connect as a new client"
)
COUNT = 60


def claim_sessions_of(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on clients of this process say that they are this one."""
    name = client._live._instance
    monkeypatch.setattr(secrets, "token_hex", lambda _: name)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_who_claims_the_session_of_a_client_that_runs_is_refused(fabric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, while the client publishes and reads."""

    async def test() -> None:
        async with antiphon.start(fabric=fabric) as node, antiphon.connect(node.address) as client:
            heard = await node.subscribe("room").ready()
            own = await client.subscribe("room").ready()
            claim_sessions_of(client, monkeypatch)
            for number in range(COUNT):
                await client.publish("room", b"%d" % number)
                if number % 20 == 10:
                    with pytest.raises(PeerError) as refused:
                        await antiphon.connect(node.address)
                    assert IN_USE in str(refused.value)
            # The node has asked the client for a sign of life by now, and has got it.
            await asyncio.sleep(1.2)
            await client.publish("room", b"end")
            everything = [*(b"%d" % number for number in range(COUNT)), b"end"]
            for subscription in (heard, own):
                assert await take_values(subscription, COUNT + 1) == everything and subscription.gaps == 0
            assert client.reconnects == 0

    running(test)


def test_who_claims_its_own_session_is_let_in_when_the_former_connection_is_found_dead() -> None:
    """The node has not noticed that the connection has ended: nobody answers there any more."""
    hello = Hello(PROTOCOL_VERSION, "antiphon", "one client", "")

    async def test() -> None:
        async with antiphon.start() as node, attacking(node) as former, attacking(node) as early:
            former.send(frames(hello))
            await asyncio.sleep(0.2)
            early.send(frames(hello))
            assert IN_USE in await early.refusal()
            await asyncio.sleep(1.2)
            async with attacking(node) as late:
                late.send(frames(hello))
                await asyncio.sleep(0.2)
                assert node._live.status.figures()["clients"] == 1 and not late.reader.at_eof()

    running(test)


def test_a_client_with_another_name_gets_a_session_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where clients have names, what a client says of its session counts under its own name only."""
    names = ("shop", "guest")
    tokens = {name: new_token() for name in names}
    rights = tmp_path / "rights.toml"
    rights.write_text(
        "".join(f'[clients.{name}]\ntoken = "{token_hash(tokens[name])}"\npublish = [">"]\n' for name in names)
    )

    async def test() -> None:
        async with antiphon.start(rights=str(rights), insecure=True) as node:
            heard = await node.subscribe("room").ready()
            async with antiphon.connect(node.address, token=tokens["shop"]) as shop:
                claim_sessions_of(shop, monkeypatch)
                async with antiphon.connect(node.address, token=tokens["guest"]) as guest:
                    assert shop._live._instance == guest._live._instance
                    for number in range(10):
                        await shop.publish("room", b"shop %d" % number)
                        await guest.publish("room", b"guest %d" % number)
                    values = await take_values(heard, 20)
            for name in names:
                own = [value for value in values if value.startswith(name.encode())]
                assert own == [b"%s %d" % (name.encode(), number) for number in range(10)]

    running(test)
