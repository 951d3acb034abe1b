"""Clients that others wrote, at real nodes: paho in both versions, over TLS too, and those of Mosquitto."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import antiphon
from antiphon.mqtt import serve
from tests.node.secure import ours

SECONDS = 60.0
VERSIONS = {"3.1.1": paho.MQTTv311, "5": paho.MQTTv5}


class StockClient:
    """A client of paho, on a thread of its own."""

    def __init__(self, client_id: str, version: int, session_seconds: int = 0, transport: Any = "tcp") -> None:
        is_clean = {"clean_session": session_seconds == 0} if version == paho.MQTTv311 else {}
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **is_clean
        )
        self.version = version
        self.session_seconds = session_seconds
        self.got: list[Any] = []
        self.flags: Any = None
        self.changed = threading.Condition()
        self.subscribed = 0
        self.paho.on_message = lambda *args: self._note(self.got.append, args[2])
        self.paho.on_subscribe = lambda *_: self._note(setattr, self, "subscribed", self.subscribed + 1)
        self.paho.on_connect = lambda *args: self._note(setattr, self, "flags", args[2])

    def _note(self, call: Callable[..., Any], *arguments: Any) -> None:
        with self.changed:
            call(*arguments)
            self.changed.notify_all()

    def until(self, is_true: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_true, SECONDS)

    def connect(self, address: str) -> StockClient:
        host, port = address.rsplit(":", 1)
        lasting: dict[str, Any] = {}
        if self.version == paho.MQTTv5:
            about = Properties(PacketTypes.CONNECT)
            about.SessionExpiryInterval = self.session_seconds
            lasting = {"clean_start": self.session_seconds == 0, "properties": about}
        self.flags = None
        self.paho.connect(host, int(port), **lasting)
        self.paho.loop_start()
        self.until(lambda: self.flags is not None)
        return self

    def subscribe(self, pattern: str, qos: int) -> None:
        before = self.subscribed
        self.paho.subscribe(pattern, qos)
        self.until(lambda: self.subscribed > before)

    def publish(self, topic: str, payload: str, qos: int = 1, retain: bool = False) -> None:
        self.paho.publish(topic, payload, qos, retain).wait_for_publish(SECONDS)

    def payloads(self, count: int) -> list[str]:
        self.until(lambda: len(self.got) >= count)
        return [message.payload.decode() for message in self.got]

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@contextmanager
def clients(*made: StockClient) -> Iterator[None]:
    try:
        yield
    finally:
        for client in made:
            client.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_speaks_with_paho_and_with_programs_at_other_nodes(version: str) -> None:
    def talk(addresses: list[str]) -> None:
        reader, writer = StockClient("reader", VERSIONS[version]), StockClient("writer", VERSIONS[version])
        with clients(reader, writer):
            reader.connect(addresses[0]).subscribe("orders/#", 2)
            writer.connect(addresses[1])
            # paho shows a message with QoS 2 when it is released: the order counts among messages with the same QoS.
            for number in range(60):
                writer.publish("orders/new", str(number), number // 20)
            assert reader.payloads(60) == [str(number) for number in range(60)]
            assert [message.qos for message in reader.got] == [number // 20 for number in range(60)]
            writer.publish("orders/last", "kept", retain=True)
            reader.payloads(61)
            reader.subscribe("orders/last", 1)
            assert reader.payloads(62)[-1] == "kept"
            assert reader.got[-1].retain

    async def run() -> None:
        async with (
            antiphon.start() as one,
            antiphon.start(join=[one.address]) as two,
            serve(one, "127.0.0.1:0") as first,
            serve(two, "127.0.0.1:0") as second,
        ):
            orders = await two.subscribe("orders.new").ready()
            await asyncio.to_thread(talk, [first.address, second.address])
            assert [(await anext(aiter(orders))).value for _ in range(60)] == [b"%d" % number for number in range(60)]

    antiphon.run(run())


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_goes_on_with_its_session(version: str) -> None:
    def talk(address: str) -> None:
        reader, writer = StockClient("reader", VERSIONS[version], 60), StockClient("writer", VERSIONS[version])
        again = StockClient("reader", VERSIONS[version], 60)
        with clients(writer, again):
            reader.connect(address).subscribe("t", 1)
            reader.close()
            writer.connect(address)
            for number in range(20):
                writer.publish("t", str(number))
            assert again.connect(address).flags.session_present
            assert again.payloads(20) == [str(number) for number in range(20)]

    async def run() -> None:
        async with antiphon.start() as node, serve(node, "127.0.0.1:0") as door:
            await asyncio.to_thread(talk, door.address)

    antiphon.run(run())


def test_paho_comes_over_tls_with_a_certificate() -> None:
    def talk(address: str) -> None:
        files = ours().client("sensor")
        client = StockClient("c", paho.MQTTv5)
        client.paho.tls_set(files.authority, files.certificate, files.key, ssl.CERT_REQUIRED)
        with clients(client):
            client.connect(address).subscribe("t", 1)
            client.publish("t", "over TLS")
            assert client.payloads(1) == ["over TLS"]

    async def run() -> None:
        async with antiphon.start(**ours().node("mqtt-node")) as node, serve(node, "127.0.0.1:0") as door:
            await asyncio.to_thread(talk, door.address)

    antiphon.run(run())


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="the clients of Mosquitto are not installed")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_the_commands_of_mosquitto_work(version: str) -> None:
    async def command(name: str, address: str, *flags: str) -> asyncio.subprocess.Process:
        host, port = address.rsplit(":", 1)
        given = ("-h", host, "-p", port, "-V", version, *flags)
        return await asyncio.create_subprocess_exec(name, *given, stdout=asyncio.subprocess.PIPE)

    async def run() -> None:
        async with antiphon.start() as node, serve(node, "127.0.0.1:0") as door:
            kept = await command("mosquitto_pub", door.address, "-t", "a/b", "-m", "kept", "-q", "2", "-r")
            assert await kept.wait() == 0
            reading = await command("mosquitto_sub", door.address, "-t", "a/#", "-q", "2", "-C", "2", "-v")
            assert reading.stdout is not None
            assert await reading.stdout.readline() == b"a/b kept\n"
            more = await command("mosquitto_pub", door.address, "-t", "a", "-m", "more", "-q", "1")
            assert await more.wait() == 0
            assert (await reading.communicate())[0] == b"a more\n"

    antiphon.run(run())
