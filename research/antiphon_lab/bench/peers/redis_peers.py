"""Redis Pub/Sub: redis-server and redis-py with its C parser.

``PUBLISH`` is a request with an answer, so redis-py is slow one message at a time and its documentation advises
pipelines; they are used at full speed. At the moderate rate of the latency test each message is sent at once.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from antiphon_lab.bench.peers.contender import HOST, TOPIC, Arrived, Contender, Place, Side


class Redis(Contender):
    """redis-py against one redis-server."""

    name = "redis"
    title = "Redis (redis-py)"
    modules = ("redis",)
    distribution = "redis"
    program = "redis-server"
    published = "the server has handed the message to its subscribers' buffers (at full speed: each 256 together)"
    settings = (
        "pipelines of 256 without transaction, hiredis parser, RESP2, a thread that listens; "
        "nothing saved, no limit for a subscriber's buffer"
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
    """One connection to publish and another to receive, as the protocol requires."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Any = None
        self._subscription: Any = None
        self._receiver: threading.Thread | None = None

    async def open(self, arrived: Arrived) -> None:
        import redis

        # The older protocol is the faster one in this client. A subscriber may have to wait for long.
        self._client = redis.Redis(host=HOST, port=self._place.server_port, protocol=2, socket_timeout=None)
        self._client.ping()
        if self._place.receives:
            self._subscription = self._client.pubsub(ignore_subscribe_messages=True)
            self._subscription.subscribe(TOPIC)
            self._receiver = threading.Thread(target=self._receive, args=(self._subscription, arrived), daemon=True)
            self._receiver.start()

    def _receive(self, subscription: Any, arrived: Arrived) -> None:
        for message in subscription.listen():
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
        if self._receiver is not None:
            # The thread stops when it is told that no subscription is left.
            self._subscription.unsubscribe()
            self._receiver.join()
        self._client.close()
