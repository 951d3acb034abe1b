"""MQTT: the Mosquitto broker and paho-mqtt, quality of service 0; and a node of Antiphon in the place of Mosquitto.

The client's thread sends queued messages, without a bound; after each 256 messages the publisher waits until they are
written to the socket, so that the queue cannot grow for ever. The broker's own limits are off.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from antiphon import __version__
from antiphon_lab.bench.peers.contender import HOST, TOPIC, Arrived, Contender, Place, Side

ANSWER_SECONDS = 10.0


class Mosquitto(Contender):
    """paho-mqtt against one mosquitto."""

    name = "mosquitto"
    title = "Mosquitto (paho-mqtt)"
    modules = ("paho",)
    distribution = "paho-mqtt"
    program = "mosquitto"
    published = "the message is in the client's queue; after each 256 messages all are written to the socket"
    settings = (
        "quality of service 0, MQTT 3.1.1, TCP_NODELAY, no limit for queues in the broker, the client's own thread"
    )

    def version_arguments(self) -> list[str]:
        return ["-h"]

    def server_command(self, port: int, directory: Path) -> list[str]:
        settings = directory / "mosquitto.conf"
        lines = (
            f"listener {port} {HOST}",
            "allow_anonymous true",
            "persistence false",
            "max_queued_messages 0",
            "max_queued_bytes 0",
            "set_tcp_nodelay true",
            "log_type error",
        )
        settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [self.find_program() or self.program, "-c", str(settings)]

    def side(self, place: Place) -> Side:
        return MosquittoSide(place)


class AntiphonMqtt(Mosquitto):
    """The same client against one node of Antiphon."""

    name = "antiphon-mqtt"
    title = "Antiphon over MQTT (paho-mqtt)"
    program = sys.executable
    settings = "quality of service 0, MQTT 3.1.1, causal order, the client's own thread"

    def server_version(self) -> str:
        """The node, and not the interpreter that runs it."""
        return f"antiphon {__version__}"

    def server_command(self, port: int, directory: Path) -> list[str]:
        """A node of a cluster of one, with a door for MQTT."""
        return [sys.executable, "-m", "antiphon", "node", "--mqtt", f"{HOST}:{port}", "--log-level", "warning"]


class MosquittoSide(Side):
    """One connection for both directions, served by the client's thread."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Any = None

    async def open(self, arrived: Arrived) -> None:
        import paho.mqtt.client as mqtt

        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"bench-{self._place.index}")
        self._client = client
        ready = threading.Event()

        def connected(client: Any, *_: Any) -> None:
            if self._place.receives:
                client.subscribe(TOPIC, qos=0)
            else:
                ready.set()

        client.on_connect = connected
        client.on_subscribe = lambda *_: ready.set()
        client.on_message = lambda _client, _data, message: arrived(message.payload)
        client.connect(HOST, self._place.server_port)
        client.loop_start()
        if not ready.wait(ANSWER_SECONDS):
            raise TimeoutError("the broker did not answer")

    async def publish(self, payload: bytes, count: int) -> None:
        publish = self._client.publish
        for _ in range(count):
            last = publish(TOPIC, payload)
        if count > 1:
            last.wait_for_publish()

    async def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
