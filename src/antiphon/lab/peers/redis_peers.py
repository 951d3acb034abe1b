"""Redis Pub/Sub: redis-server and redis-py with its C parser.

``PUBLISH`` is a request with an answer, so redis-py is slow one message at a time and its documentation advises
pipelines; they are used at full speed. At the moderate rate of the latency test each message is sent at once.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from antiphon.lab.peers.contender import HOST, TOPIC, Arrived, Contender, Place, Side

STOP_CHECK_SECONDS = 0.2


class Redis(Contender):
    """redis-py against one redis-server."""

    name = "redis"
    title = "Redis (redis-py)"
    modules = ("redis",)
    distribution = "redis"
    program = "redis-server"
    published = "the server has handed the message to its subscribers' buffers (at full speed: each 256 together)"
    settings = (
        "pipelines of 256 without transaction, hiredis parser, nothing saved, no limit for a subscriber's buffer, "
        "a thread that receives"
    )

    def server_command(self, port: int, directory: Path) -> list[str]:
        return [
            self.find_program() or self.program,
            *("--bind", HOST, "--port", str(port), "--dir", str(directory)),
            *("--save", "", "--appendonly", "no", "--client-output-buffer-limit", "pubsub 0 0 0"),
        ]

    def side(self, place: Place) -> Side:
        return RedisSide(place)


class RedisSide(Side):
    """One connection to publish and another to receive, as the protocol wants."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Any = None
        self._stopping = threading.Event()
        self._receiver: threading.Thread | None = None

    async def open(self, arrived: Arrived) -> None:
        import redis

        self._client = redis.Redis(host=HOST, port=self._place.server_port)
        self._client.ping()
        if self._place.receives:
            subscription = self._client.pubsub(ignore_subscribe_messages=True)
            subscription.subscribe(TOPIC)
            self._receiver = threading.Thread(target=self._receive, args=(subscription, arrived), daemon=True)
            self._receiver.start()

    def _receive(self, subscription: Any, arrived: Arrived) -> None:
        receive = subscription.get_message
        while not self._stopping.is_set():
            message = receive(timeout=STOP_CHECK_SECONDS)
            if message is not None:
                arrived(message["data"])

    async def publish(self, payload: bytes, count: int) -> None:
        if count == 1:
            self._client.publish(TOPIC, payload)
            return
        pipeline = self._client.pipeline(transaction=False)
        publish = pipeline.publish
        for _ in range(count):
            publish(TOPIC, payload)
        pipeline.execute()

    async def close(self) -> None:
        self._stopping.set()
        if self._receiver is not None:
            self._receiver.join()
        self._client.close()
