"""Zenoh: peers of eclipse-zenoh that are connected directly, over TCP, without a router.

Zenoh drops under congestion unless a publisher asks to be blocked, which it does here. Its batching is left on.
"""

from __future__ import annotations

import json
from typing import Any

from antiphon_lab.bench.peers.contender import HOST, TOPIC, Arrived, Contender, Place, Side


class Zenoh(Contender):
    """eclipse-zenoh, a library in Rust with a thin layer of Python."""

    name = "zenoh"
    title = "Zenoh (eclipse-zenoh)"
    modules = ("zenoh",)
    distribution = "eclipse-zenoh"
    published = "the message is in a batch that a thread of the library sends"
    settings = (
        "peers over TCP without scouting, declared publishers, congestion control `block`, batching on, callbacks"
    )

    def side(self, place: Place) -> Side:
        return ZenohSide(place)


class ZenohSide(Side):
    """A publisher listens, a subscriber connects to all publishers, each pair once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._session: Any = None
        self._publisher: Any = None
        self._subscriber: Any = None

    async def open(self, arrived: Arrived) -> None:
        import zenoh

        place = self._place
        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("scouting/gossip/enabled", "false")
        listens = [f"tcp/{HOST}:{place.own_port}"] if place.publishes else []
        config.insert_json5("listen/endpoints", json.dumps(listens))
        others = place.publisher_ports[: place.index] if place.publishes else place.publisher_ports
        config.insert_json5("connect/endpoints", json.dumps([f"tcp/{HOST}:{port}" for port in others]))
        self._session = zenoh.open(config)
        if place.publishes:
            self._publisher = self._session.declare_publisher(
                TOPIC, congestion_control=zenoh.CongestionControl.BLOCK, express=False
            )
        if place.receives:
            self._subscriber = self._session.declare_subscriber(
                TOPIC, lambda sample: arrived(sample.payload.to_bytes())
            )

    async def publish(self, payload: bytes, count: int) -> None:
        put = self._publisher.put
        for _ in range(count):
            put(payload)

    async def close(self) -> None:
        self._session.close()
