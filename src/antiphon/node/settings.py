"""What a node is told when it starts: by arguments, by flags, or by a TOML file with the same names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.api.publisher import check_order
from antiphon.api.topic_names import checked_name, checked_pattern, topic_number
from antiphon.fabrics.fabric import HostNames, NodeChoices
from antiphon.fabrics.registry import DEFAULT_FABRIC, FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.runtime.toml_config import convert_table, nearest_names, read_table
from antiphon.transport.links import split_address
from antiphon.transport.tls import HOW_TO_MAKE, Tls, is_loopback

HOST_NAMES: Final = HostNames(split_address, checked_name, topic_number)
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

    fabric: str = DEFAULT_FABRIC
    """How nodes are connected; :data:`antiphon.fabrics.registry.FABRICS` describes the fabrics."""

    table: Any = None
    """The options of the fabric, or the TOML file that has them; its defaults without it. In files and arguments it has
    the name of the fabric: ``[tree]``, ``tree=``."""

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
        return msgspec.structs.replace(self, durability=durability, table=self._checked_table())

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

    def choices(self) -> NodeChoices:
        """The settings that the process of the node depends on."""
        forget_ticks = int(self.forget_seconds * 1_000_000)
        return NodeChoices(self.order, self.window, forget_ticks, self.table, HOST_NAMES, self.window_bytes)

    def _checked_table(self) -> msgspec.Struct | None:
        """The options of the fabric, with defaults filled in; None if it has none."""
        implementation = FABRICS[self.fabric].implementation()
        if implementation.table is None:
            if self.table is not None:
                raise UsageError(f"the fabric {self.fabric!r} has no table of settings; leave it out")
            return None
        table = read_fabric_table(self.fabric, implementation.table, self.table)
        implementation.check(msgspec.structs.replace(self, table=table).choices(), bool(self.join))
        return table


def read_fabric_table(fabric: str, kind: type[msgspec.Struct], given: Any) -> msgspec.Struct:
    """The options of a fabric, as they were given: a table, a file that has one, or nothing."""
    if isinstance(given, kind):
        return given
    if isinstance(given, str):
        return read_table(Path(given), fabric, kind, "says how nodes behave")
    return convert_table({} if given is None else given, fabric, kind, f"[{fabric}]")


def choose(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse what is not among the allowed values."""
    if value not in allowed:
        raise UsageError(f"{name} is {' or '.join(allowed)}, not {value!r}; choose one of these")


def settings_from(values: dict[str, Any], where: str) -> Settings:
    """Settings from names and values; errors say where they came from."""
    values = with_table(values)
    try:
        return msgspec.convert(values, Settings).checked()
    except msgspec.ValidationError as error:
        hint = nearest_names(values, Settings.__struct_fields__)
        raise UsageError(
            f"{where}: {error}{hint}; antiphon node --help and docs/operations.md name all settings"
        ) from error


def with_table(values: dict[str, Any]) -> dict[str, Any]:
    """The same, with the table of the fabric under its general name; a table of another fabric is refused."""
    names = [name for name, fabric in FABRICS.items() if fabric.has_table]
    tables = {name: values[name] for name in names if values.get(name) is not None}
    fabric = values.get("fabric", DEFAULT_FABRIC)
    for name in tables:
        if name != fabric:
            raise UsageError(f"the table {name} is for the fabric {name!r}: choose that fabric, or leave it out")
    others = {name: value for name, value in values.items() if name not in names}
    return {**others, "table": tables[fabric]} if tables else others


def read_settings(path: Path, **overrides: Any) -> Settings:
    """Settings from a TOML file; what is given besides counts more."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check the name") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    return settings_from({**values, **overrides}, str(path))
