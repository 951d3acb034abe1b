"""A client that uses nothing of Antiphon: sockets, MessagePack and the page about the wire protocol.

It connects to a node, subscribes, publishes a question in causal order and prints what it receives. Use it as a pattern
for a client in another language.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from typing import Any

import msgspec.msgpack  # any library for MessagePack will do

import antiphon  # for the node only

HELLO, REFUSED, PUBLISH, ACCEPTED, SUBSCRIBE, READY, DELIVERY, CONSUMED = 100, 101, 150, 151, 152, 153, 155, 156
STATUS, STATUS_ANSWER, HEARTBEAT, HEARTBEAT_ANSWER = 158, 159, 167, 168
VERSION = 9


class WireClient:
    """One connection to one node."""

    def __init__(self, address: str, cluster: str = "antiphon") -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._stream = self._socket.makefile("rb")
        self._serials: dict[str, int] = {}
        self._sequences: dict[str, int] = {}
        self._number = 0
        self.waiting: list[tuple[str, bytes]] = []
        self.send(HELLO, VERSION, cluster, secrets.token_hex(8), "")
        self.send(STATUS, 0, False)
        self.status: dict[str, Any] = self.until(STATUS_ANSWER)[2]

    def send(self, *message: Any) -> None:
        """A frame: the length in four bytes, least first, and an array that begins with the number of the message."""
        frame = msgspec.msgpack.encode(message)
        self._socket.sendall(len(frame).to_bytes(4, "little") + frame)

    def receive(self) -> list[Any]:
        """The next message of the node; heartbeats are answered, and deliveries are put aside."""
        length = int.from_bytes(self._stream.read(4), "little")
        message: list[Any] = msgspec.msgpack.decode(self._stream.read(length))
        if message[0] == REFUSED:
            raise ConnectionError(message[1])
        if message[0] == HEARTBEAT:
            self.send(HEARTBEAT_ANSWER)
        elif message[0] == DELIVERY:
            _, number, topic, _, _, first_offset, from_offset, payload, *_ = message
            values = values_of(payload)[max(0, from_offset - first_offset) :]
            self.waiting += [(topic, value) for value in values]
            self.send(CONSUMED, number, len(values))
        return message

    def until(self, kind: int) -> list[Any]:
        """Receive messages up to one of this kind."""
        while True:
            message = self.receive()
            if message[0] == kind:
                return message

    def next_number(self) -> int:
        """A number for a request or a subscription."""
        self._number += 1
        return self._number

    def subscribe(self, topic: str) -> None:
        """Subscribe to new messages, and wait until the subscription is effective."""
        self.send(SUBSCRIBE, self.next_number(), topic, "latest", False, "block", 1000)
        self.until(READY)

    def publish(self, topic: str, values: list[bytes], order: str = "causal") -> None:
        """Publish a batch, and wait until it is accepted."""
        first = self._sequences.get(topic, 1)
        self._sequences[topic] = first + len(values)
        self._serials[topic] = self._serials.get(topic, 0) + 1
        columns = msgspec.msgpack.encode([first, time.time_ns() // 1000, values])
        payload = len(values).to_bytes(4, "little") + columns
        self.send(PUBLISH, self.next_number(), topic, order, payload, [], self._serials[topic])
        error = self.until(ACCEPTED)[2]
        if error:
            raise ConnectionError(error)


def values_of(payload: bytes) -> list[bytes]:
    """The values of a batch: a count with two marks, the author if there is one, and the columns."""
    word = int.from_bytes(payload[:4], "little")
    has_author, has_writer = word >> 31, word >> 30 & 1
    begin = 4 + (48 if has_writer else 16 if has_author else 0)
    values: list[bytes] = msgspec.msgpack.decode(payload[begin:])[2]
    return values


def talk(address: str) -> list[tuple[str, bytes]]:
    """Ask, and hear the question and its answer."""
    client = WireClient(address)
    client.subscribe("room")
    client.publish("room", [b"why?", b"and when?"])
    while len(client.waiting) < 3:
        client.receive()
    return client.waiting


async def main() -> None:
    """A node, an application of it that answers, and the client."""
    async with antiphon.start() as node:
        questions = await node.subscribe("room").ready()
        talking = asyncio.create_task(asyncio.to_thread(talk, node.address))
        async for message in questions:
            if message.value == b"and when?":
                await node.publish("room", b"because, and soon", order="causal")
                break
        for topic, value in await talking:
            print(topic, value.decode())


if __name__ == "__main__":
    antiphon.run(main())
