"""The contenders by name, in the order of the table. Their clients are imported by the processes that use them."""

from __future__ import annotations

from antiphon.kernel.errors import UsageError
from antiphon_lab.bench.peers.antiphon_peers import VARIANTS, Antiphon
from antiphon_lab.bench.peers.contender import Contender
from antiphon_lab.bench.peers.mosquitto_peers import AntiphonMqtt, Mosquitto
from antiphon_lab.bench.peers.nats_peers import Nats
from antiphon_lab.bench.peers.redis_peers import Redis
from antiphon_lab.bench.peers.tcp_peers import BareTcp
from antiphon_lab.bench.peers.zenoh_peers import Zenoh
from antiphon_lab.bench.peers.zeromq_peers import ZeroMq

US = Antiphon.name

CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (Antiphon(), ZeroMq(), Zenoh(), Nats(), Redis(), Mosquitto(), AntiphonMqtt(), BareTcp())
}

OURS: dict[str, Contender] = {contender.name: contender for contender in VARIANTS}
"""Antiphon in different settings, for `antiphon bench live`."""


def contender_named(name: str) -> Contender:
    """The contender with this name."""
    if name in OURS:
        return OURS[name]
    if name not in CONTENDERS:
        raise UsageError(f"there is no contender named {name!r}; choose among {', '.join(CONTENDERS)}")
    return CONTENDERS[name]
