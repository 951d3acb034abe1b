"""What a node is told when it starts: by arguments, by flags, or by a TOML file with the same names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.api.publisher import check_order
from antiphon.api.topic_names import checked_pattern
from antiphon.fabrics.registry import FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.node.gossip_settings import GossipTable
from antiphon.node.tree_settings import TreeTable, read_tree
from antiphon.runtime.toml_config import nearest_names, read_table
from antiphon.transport.links import split_address
from antiphon.transport.tls import HOW_TO_MAKE, Tls, is_loopback

DURABILITIES: Final = ("memory", "disk")
GATHER_SECONDS_AT_MOST: Final = 1.0
AGGREGATE_REFUSED: Final = (
    "aggregate is not for live nodes yet: a cluster that aggregates stalls when one of its nodes fails; leave "
    "aggregate out, and set gather_seconds if small packets are to travel together"
)
POSITIVE: Final = (
    "window", "window_bytes", "pending_bytes", "backlog_bytes", "maximum_nodes", "maximum_clients", "maximum_topics",
    "client_topics", "join_seconds", "leave_seconds", "lost_seconds", "forget_seconds", "handshake_seconds",
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a node runs. Everything has a default; nothing can be changed while it runs."""

    listen: str = "127.0.0.1:0"
    """Where peers and clients connect; port 0 takes a free one."""

    advertise: str | None = None
    """The address that others are told, if it is not the one to listen at (behind a translation of addresses)."""

    join: list[str] = []
    """Addresses of nodes of the cluster, any of which will do; none founds a cluster."""

    data: str | None = None
    """The directory of the durable log; without one, nothing is kept."""

    durability: str | None = None
    """``disk``: a message is accepted when it is on disk, and seen by subscribers after that. ``memory``: at once; a
    log, if there is one, follows. The default is ``disk`` with a data directory and ``memory`` without one."""

    fabric: str = "cube"
    """How nodes are connected: ``cube``; ``tree``, a tree of brokers; or ``gossip``, where each node knows some of the
    others and nodes may fail and come at any time."""

    tree: TreeTable | str | None = None
    """The brokers that found a tree and how brokers behave, or the TOML file that says it; without it a broker founds
    one by itself, unless it joins others."""

    gossip: GossipTable | str | None = None
    """How nodes of the fabric gossip behave, or the TOML file that says it; the defaults if it is not given."""

    order: str = "causal"
    """How messages are ordered that do not say it themselves."""

    cluster: str = "antiphon"
    """Nodes and clients of different clusters do not talk to each other."""

    retention_bytes: int | None = None
    retention_seconds: float | None = None
    """How much of each topic the log keeps; None keeps everything. See ``docs/operations.md``."""

    keep: list[str] = []
    """Topics or patterns of which this node is a member from the start, whoever is here: clients that come from other
    nodes find what they lack."""

    window: int = 64
    """Batches of one topic that are under way from this node before publishers wait. The throughput of one publisher
    over a round trip of t seconds is at most window / t batches per second."""

    window_bytes: int = 16 << 20
    """The same in bytes; a single batch may be larger. Memory in flight at a subscriber is at most this for each node
    that publishes on a topic, and one batch."""

    pending_bytes: int = 64 << 20
    """Bytes that wait for the disk before publishers wait, here at once and elsewhere because nothing is
    acknowledged to them."""

    backlog_bytes: int = 256 << 20
    """Bytes that all clients together have handed in and that are not published yet, before no more is read from
    those who have handed in something."""

    gather_seconds: float = 0.0
    """How long what is to be sent to a peer waits for more to be written with it; 0 writes at the end of every turn of
    the loop. Each hop may add as much to the latency, and saves writes and packets where there are many small ones."""

    aggregate: bool = False
    """Refused: the process that delays messages to send them with their predecessors does not survive the failure of
    another node. Simulations have it."""

    maximum_nodes: int = 1024
    maximum_clients: int = 1024
    maximum_topics: int = 65_536
    """Clients beyond these numbers, or that use new topics beyond them, are refused."""

    client_topics: int = 1024
    """On how many topics one client may publish over one connection, and how many subscriptions it may have."""

    join_seconds: float = 15.0
    """How long to look for a place in the cluster before giving up."""

    leave_seconds: float = 10.0
    """How long a node that is closed waits for others to let it go in an orderly way."""

    lost_seconds: float = 5.0
    """How long another node may give no sign of life, in every fabric, before it counts as lost and the others go on
    without it; its process gives signs, not only its machine. It is found again when it goes on. A process that ends is
    noticed at once."""

    forget_seconds: float = 600.0
    """How long a node of a cube that is out of reach is expected back; until then others wait for what only it has."""

    metrics: str | None = None
    """Where to answer ``/metrics``, ``/health`` and ``/ready`` over HTTP, for example 127.0.0.1:9464."""

    trace: str | None = None
    """A file (``.parquet`` or ``.arrow``) for the trace of what this node delivered."""

    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_authority: str | None = None
    """PEM files: this node's certificate, its key, and the authority that signed those of the others. With them all
    connections are encrypted, and nodes have to show certificates."""

    rights: str | None = None
    """A TOML file that says what each client may do, and the hashes of their tokens; without it, everything."""

    handshake_seconds: float = 5.0
    """How long whoever connects may take to say who it is."""

    insecure: bool = False
    """Whether to listen without TLS where other machines can connect: whoever can, may do everything."""

    def checked(self) -> Settings:
        """The same with defaults filled in; an error names the setting that cannot be."""
        for address in (self.listen, self.advertise, self.metrics, *self.join):
            if address is not None:
                split_address(address)
        for pattern in self.keep:
            checked_pattern(pattern)
        choose("fabric", self.fabric, tuple(FABRICS))
        if self.aggregate:
            raise UsageError(AGGREGATE_REFUSED)
        tree = self._checked_tree()
        gossip = self._checked_gossip()
        check_order(self.order)
        durability = self.durability or ("disk" if self.data is not None else "memory")
        choose("durability", durability, DURABILITIES)
        if durability == "disk" and self.data is None:
            raise UsageError("durability 'disk' needs a place: give a data directory (data=..., --data)")
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be positive, not {getattr(self, name)}")
        self.tls()
        self._check_exposure()
        if not 0 <= self.gather_seconds <= GATHER_SECONDS_AT_MOST:
            raise UsageError(f"gather_seconds is from 0 to {GATHER_SECONDS_AT_MOST}, not {self.gather_seconds}")
        return msgspec.structs.replace(self, durability=durability, tree=tree, gossip=gossip)

    def tls(self) -> Tls | None:
        """The files for TLS; None without it."""
        given = (self.tls_certificate, self.tls_key, self.tls_authority)
        if self.tls_authority is None or self.tls_certificate is None or self.tls_key is None:
            if any(given):
                raise UsageError(
                    f"tls_certificate, tls_key and tls_authority go together: give all three; {HOW_TO_MAKE}"
                )
            return None
        return Tls(authority=self.tls_authority, certificate=self.tls_certificate, key=self.tls_key)

    def maximum_connections(self) -> int:
        """How many connections a node may have: of clients, and two of each node, while one replaces another."""
        return self.maximum_clients + 2 * self.maximum_nodes

    def _check_exposure(self) -> None:
        """Refuse to let other machines in without TLS."""
        if self.insecure or self.tls() is not None:
            return
        if self.rights is not None:
            raise UsageError(
                f"rights mean nothing without TLS, as anybody can say to be a node: give tls_certificate, tls_key and "
                f"tls_authority ({HOW_TO_MAKE}), or say insecure if that does not matter"
            )
        for name, address in (("listen", self.listen), ("metrics", self.metrics)):
            if address is not None and not is_loopback(split_address(address)[0]):
                raise UsageError(
                    f"{name} is {address}, where other machines can connect, and there is no TLS: give "
                    f"tls_certificate, tls_key and tls_authority ({HOW_TO_MAKE}), or say insecure (--insecure) if "
                    "whoever can connect may do everything"
                )

    def _has_table(self, name: str, table: object) -> bool:
        """Whether the fabric has a table; a table of another fabric is refused."""
        if FABRICS[self.fabric].table == name:
            return True
        if table is not None:
            raise UsageError(f"the table {name} is for the fabric {name!r}: choose that fabric, or leave it out")
        return False

    def _checked_tree(self) -> TreeTable | None:
        if not self._has_table("tree", self.tree):
            return None
        table = self.tree or TreeTable()
        checked = (read_tree(Path(table)) if isinstance(table, str) else table).checked()
        if self.join and not checked.quorum:
            raise UsageError("nobody joins a tree without a quorum: leave out join, or write quorum = true in [tree]")
        return checked

    def _checked_gossip(self) -> GossipTable | None:
        if not self._has_table("gossip", self.gossip):
            return None
        table = self.gossip or GossipTable()
        if isinstance(table, str):
            table = read_table(Path(table), "gossip", GossipTable, "says how nodes behave")
        table.options("causal", self.window, [0])
        return table


def choose(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse what is not among the allowed values."""
    if value not in allowed:
        raise UsageError(f"{name} is {' or '.join(allowed)}, not {value!r}; choose one of these")


def settings_from(values: dict[str, Any], where: str) -> Settings:
    """Settings from names and values; errors say where they came from."""
    try:
        return msgspec.convert(values, Settings).checked()
    except msgspec.ValidationError as error:
        hint = nearest_names(values, Settings.__struct_fields__)
        raise UsageError(
            f"{where}: {error}{hint}; antiphon node --help and docs/operations.md name all settings"
        ) from error


def read_settings(path: Path, **overrides: Any) -> Settings:
    """Settings from a TOML file; what is given besides counts more."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check the name") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    return settings_from({**values, **overrides}, str(path))
