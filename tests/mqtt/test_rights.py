"""Who may do what at a door: tokens, certificates, rights that change, and quotas."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import antiphon
from antiphon.kernel.errors import UsageError
from antiphon.mqtt import serve
from antiphon.mqtt.protocol.packets import PublishPacket
from antiphon.mqtt.session import MqttSession
from antiphon.node.acl import ANYBODY, new_token, token_hash
from antiphon.node.quotas import Quotas
from antiphon.node.status import metrics_text
from tests.mqtt.raw_client import RawClient, close_all, connect, connected, opened, properties, publish, short, text

SECRET = PublishPacket("orders", b"secret", 1, True)

RIGHTS = """
[clients.shop]
token = "{token}"
publish = ["orders.>"]
subscribe = ["orders.>"]

[clients.shop.quotas]
subscriptions = 1
messages_per_second = 20
"""


def credentials(name: str, token: str) -> bytes:
    return text(name) + text(token)


async def entered(address: str, name: str, token: str, client_id: str = "c") -> tuple[RawClient, int]:
    """A client with a name and a token; the reason with which it was answered."""
    client = await opened(address)
    first, body = await client.ask(connect(client_id, flags=0xC2, payload=credentials(name, token)))
    assert first == 0x20
    return client, body[1]


def test_names_and_tokens_decide_who_comes_in_and_rights_what_is_done(tmp_path: Path) -> None:
    token = new_token()
    rights = tmp_path / "rights.toml"
    rights.write_text(RIGHTS.format(token=token_hash(token)))

    async def run() -> None:
        # Rights without TLS are refused unless somebody says that it does not matter.
        async with antiphon.start(rights=str(rights), insecure=True) as node, serve(node, "127.0.0.1:0") as door:
            try:
                address = door.address
                assert (await entered(address, "shop", "wrong"))[1] == 0x86
                assert (await entered(address, "other", token))[1] == 0x86
                nameless = await opened(address)
                assert (await nameless.ask(connect("c")))[1][1] == 0x87
                old = await opened(address)
                asked = connect("c", version=4, flags=0xC2, payload=credentials("shop", "wrong"))
                assert await old.ask(asked) == (0x20, b"\0\4")
                client, reason = await entered(address, "shop", token)
                assert reason == 0
                # What is retained where the client has no right stays hidden.
                door.publish(
                    MqttSession(
                        "x", 1, ANYBODY, node._live.ledger.account("", Quotas()), lambda: None, lambda *_: None
                    ),
                    SECRET,
                )
                assert await client.subscribed("orders/#", 1) == 1
                assert await client.subscribed("prices/#", 1) == 0x87
                assert await client.subscribed("orders/new", 1) == 0x97  # one subscription is its quota
                assert await client.subscribed("$SYS/#") == 0x87
                first, body = await client.ask(publish("prices/eur", b"1", 1, 5))
                assert (first, body[:3]) == (0x40, short(5) + b"\x87")
                # Nothing is left of a client that loses its rights.
                rights.write_text(RIGHTS.format(token=token_hash(new_token())))
                node._live.read_again()
                ending = await client.end()
                assert ending[0] == 0xE0
                assert ending[2] == 0x87
            finally:
                await close_all()

    antiphon.run(run())


def test_a_rate_that_is_used_up_slows_the_client(tmp_path: Path) -> None:
    token = new_token()
    rights = tmp_path / "rights.toml"
    rights.write_text(RIGHTS.format(token=token_hash(token)))

    async def run() -> None:
        async with antiphon.start(rights=str(rights), insecure=True) as node, serve(node, "127.0.0.1:0") as door:
            try:
                client, _ = await entered(door.address, "shop", token)
                began = asyncio.get_running_loop().time()
                for number in range(1, 41):
                    client.send(publish("orders/new", b"x", 1, number))
                for _ in range(40):
                    assert (await client.packet())[0] == 0x40
                # Twenty messages may come at once, and the other twenty in the second after that.
                assert asyncio.get_running_loop().time() - began > 0.9
            finally:
                await close_all()

    antiphon.run(run())


def test_sessions_belong_to_their_identity(tmp_path: Path) -> None:
    tokens = [new_token(), new_token()]
    rights = tmp_path / "rights.toml"
    rights.write_text(
        "".join(f'[clients.{name}]\ntoken = "{token_hash(token)}"\n' for name, token in zip("ab", tokens, strict=True))
    )

    async def run() -> None:
        async with antiphon.start(rights=str(rights), insecure=True) as node, serve(node, "127.0.0.1:0") as door:
            try:
                one, _ = await entered(door.address, "a", tokens[0])
                await entered(door.address, "b", tokens[1])
                assert await one.ask(bytes.fromhex("c000")) == (0xD0, b"")
                assert door.connections == 2
            finally:
                await close_all()

    antiphon.run(run())


def test_a_door_for_other_machines_needs_tls() -> None:
    async def run() -> None:
        async with antiphon.start() as node:
            with pytest.raises(UsageError, match="no TLS"):
                await serve(node, "0.0.0.0:0")

    antiphon.run(run())


def test_a_port_in_use_is_named() -> None:
    async def run() -> None:
        async with antiphon.start() as node, serve(node, "127.0.0.1:0") as door:
            with pytest.raises(UsageError, match="choose another address"):
                await serve(node, door.address)

    antiphon.run(run())


def test_sessions_without_a_connection_count_too(tmp_path: Path) -> None:
    token = new_token()
    rights = tmp_path / "rights.toml"
    rights.write_text(f'[clients.a]\ntoken = "{token_hash(token)}"\n[clients.a.quotas]\nconnections = 2\n')

    async def run() -> None:
        async with antiphon.start(rights=str(rights), insecure=True) as node, serve(node, "127.0.0.1:0") as door:
            try:
                lasting = properties(b"\x11" + (60).to_bytes(4, "big"))
                for name in ("one", "two"):
                    client = await opened(door.address)
                    payload = credentials("a", token)
                    assert (await client.ask(connect(name, flags=0xC2, extra=lasting, payload=payload)))[1][1] == 0
                    client.send(bytes.fromhex("e000"))
                    await client.end()
                assert (await entered(door.address, "a", token, "three"))[1] == 0x97
                assert (await entered(door.address, "a", token, "one"))[1] == 0
            finally:
                await close_all()

    antiphon.run(run())


def test_the_metrics_of_the_node_have_the_figures_of_its_door() -> None:
    async def run() -> None:
        async with antiphon.start() as node, serve(node, "127.0.0.1:0") as door:
            client = await connected(door.address)
            await client.subscribed("t")
            await client.subscribed("$share/g/t")
            await client.ask(publish("kept", b"x", 1, 1, retain=True))
            bad = await connected(door.address)
            bad.send(bytes.fromhex("3600"))
            await bad.end()
            text = metrics_text(node._live.status.figures()).decode()
            for line in (
                "antiphon_mqtt_connections 1.0",
                "antiphon_mqtt_sessions 1.0",
                "antiphon_mqtt_subscriptions 2.0",
                "antiphon_mqtt_groups 1.0",
                "antiphon_mqtt_received_total 1.0",
                "antiphon_mqtt_retained 1.0",
                "antiphon_mqtt_refused_total 1.0",
            ):
                assert line in text
            await close_all()
        async with antiphon.start() as node:
            assert "antiphon_mqtt" not in metrics_text(node._live.status.figures()).decode()

    antiphon.run(run())
