"""ZeroMQ: PUB and SUB sockets of pyzmq, directly between the processes.

A PUB socket drops what does not fit into its queue unless told otherwise. ``XPUB_NODROP`` makes it wait instead, so
that a publisher is slowed by its slowest subscriber; the queues are made long so that it seldom waits.
"""

from __future__ import annotations

import threading
from typing import Any

from antiphon_lab.bench.peers.contender import HOST, Arrived, Contender, Place, Side

QUEUE_MESSAGES = 100_000
STOP_CHECK_MILLISECONDS = 200


class ZeroMq(Contender):
    """pyzmq, which many consider the fastest way to send messages from Python."""

    name = "zeromq"
    title = "ZeroMQ (pyzmq)"
    modules = ("zmq",)
    distribution = "pyzmq"
    published = "the message is in the queue of the socket; a thread of the library sends it"
    settings = f"XPUB_NODROP, queues of {QUEUE_MESSAGES:,} messages at both ends, a thread that receives"

    def side(self, place: Place) -> Side:
        return ZeroMqSide(place)


class ZeroMqSide(Side):
    """A publisher binds, a subscriber connects to all publishers."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._context: Any = None
        self._publisher: Any = None
        self._stopping = threading.Event()
        self._receiver: threading.Thread | None = None

    async def open(self, arrived: Arrived) -> None:
        import zmq

        self._context = zmq.Context()
        if self._place.publishes:
            self._publisher = self._context.socket(zmq.XPUB)
            self._publisher.set(zmq.XPUB_NODROP, 1)
            self._publisher.set(zmq.SNDHWM, QUEUE_MESSAGES)
            self._publisher.bind(f"tcp://{HOST}:{self._place.own_port}")
        if self._place.receives:
            self._receiver = threading.Thread(target=self._receive, args=(arrived,), daemon=True)
            self._receiver.start()

    def _receive(self, arrived: Arrived) -> None:
        import zmq

        with self._context.socket(zmq.SUB) as subscriber:
            subscriber.set(zmq.RCVHWM, QUEUE_MESSAGES)
            subscriber.set(zmq.RCVTIMEO, STOP_CHECK_MILLISECONDS)
            subscriber.set(zmq.LINGER, 0)
            # An empty prefix: every message carries its payload and nothing else.
            subscriber.set(zmq.SUBSCRIBE, b"")
            for port in self._place.publisher_ports:
                subscriber.connect(f"tcp://{HOST}:{port}")
            receive = subscriber.recv
            while not self._stopping.is_set():
                try:
                    while True:
                        arrived(receive())
                except zmq.Again:
                    continue

    async def publish(self, payload: bytes, count: int) -> None:
        send = self._publisher.send
        for _ in range(count):
            send(payload)

    async def close(self) -> None:
        self._stopping.set()
        if self._receiver is not None:
            self._receiver.join()
        if self._publisher is not None:
            self._publisher.close(linger=0)
        self._context.term()
