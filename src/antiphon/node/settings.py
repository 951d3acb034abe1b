"""The settings with which a node starts: by arguments, by flags, or by a TOML file with the same names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.api.publisher import check_order
from antiphon.api.topic_names import checked_name, checked_pattern, topic_number
from antiphon.fabrics.fabric import HostNames, NodeChoices
from antiphon.fabrics.registry import DEFAULT_FABRIC, FABRICS
from antiphon.kernel.errors import UsageError
from antiphon.membership.address_book import WISHES_BELOW
from antiphon.runtime.toml_config import convert_table, nearest_names, read_table
from antiphon.transport.links import split_address
from antiphon.transport.tls import HOW_TO_MAKE, Tls, is_loopback

if TYPE_CHECKING:
    from antiphon.transport.certificate_watch import CertificateWatch

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
    "frame_seconds", "audit_bytes", "space_names",
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a node runs. Everything has a default; nothing can be changed while it runs."""

    listen: str = "127.0.0.1:0"
    """The address for peers and clients; port 0 takes a free one."""

    advertise: str | None = None
    """The address that others are told, if it differs from ``listen``; needed with ``0.0.0.0``."""

    join: list[str] = []
    """Addresses of nodes of the cluster, any of which will do; without one the node founds a cluster."""

    data: str | None = None
    """The directory of the durable log; without one nothing is stored."""

    durability: str | None = None
    """``disk``: a message is accepted, and shown to subscribers, when it is on disk. ``memory``: at once, and the log
    follows. Without it: ``disk`` if there is a data directory, else ``memory``."""

    fabric: str = DEFAULT_FABRIC
    """How nodes are connected: ``cube``, ``tree`` or ``gossip``."""

    table: Any = None
    """The options of the fabric, or the TOML file that has them. In files and arguments it has the name of the fabric:
    ``[tree]``, ``tree=``."""

    order: str = "causal"
    """The order of messages that do not name one: ``none``, ``fifo``, ``causal`` or ``total``."""

    cluster: str = "antiphon"
    """Nodes and clients of different clusters refuse each other."""

    retention_bytes: int | None = None
    """How many bytes of each topic the log keeps."""

    retention_seconds: float | None = None
    """For how long the log keeps messages."""

    keep: list[str] = []
    """Topics or patterns of which the node is a member from the start, so that clients of other nodes find here what
    they lack."""

    spaces: dict[str, list[str]] = {}
    """Sets of topics with causal order across them, as a table: the name of each space, and the patterns of its
    topics. The same at all nodes of the cluster; on a cube."""

    space_names: int = 16_384
    """While a message of a space would name more than this many others, its publishers wait: so much may lack nodes
    that are away."""

    window: int = 64
    """Batches of one topic under way from this node before its publishers wait. One publisher sends at most window / t
    batches per second over a round trip of t seconds."""

    window_bytes: int = 16 << 20
    """The same in bytes; a single batch may be larger."""

    pending_bytes: int = 64 << 20
    """Bytes that wait for the disk before publishers wait, here and at other nodes."""

    backlog_bytes: int = 256 << 20
    """Bytes of all clients together that wait to be published, before the node stops reading from clients."""

    gather_seconds: float = 0.0
    """How long data for a peer waits for more data, so that both leave in one write. Each hop may add as much to the
    latency."""

    aggregate: bool = False
    """Refused for live nodes: a cluster that aggregates stalls when a node fails; ``gather_seconds`` saves packets
    too."""

    identifier: int | None = None
    """On a cube: the identifier to ask for. The node gets another one if it is taken; ``antiphon place`` chooses
    identifiers by distance. A node that founds a cluster ignores it."""

    maximum_nodes: int = 1024
    """The cluster admits no more nodes."""

    maximum_clients: int = 1024
    """The node serves no more clients."""

    maximum_topics: int = 65_536
    """The node refuses clients that use new topics beyond this number."""

    client_topics: int = 1024
    """On how many topics a client may publish over one connection, and how many subscriptions it may have."""

    join_seconds: float = 15.0
    """How long to try to join before giving up."""

    leave_seconds: float = 10.0
    """How long to wait for an orderly leave before leaving without."""

    lost_seconds: float = 5.0
    """How long another node may be silent before it counts as lost, in every fabric: its machine is out of reach, or
    its process is paused. Publishers wait for it at most one second longer, in every order. Clients learn the value
    from their node and move to another node when their own is silent for so long."""

    forget_seconds: float = 600.0
    """On a cube: how long the others expect a disconnected node back; until then they wait for messages that only it
    has."""

    metrics: str | None = None
    """Where to answer ``/metrics``, ``/status``, ``/health`` and ``/ready`` over HTTP."""

    trace: str | None = None
    """A ``.parquet`` or ``.arrow`` file for the trace of this node."""

    tls_certificate: str | None = None
    """The certificate of this node, a PEM file. It goes together with ``tls_key`` and ``tls_authority``."""

    tls_key: str | None = None
    """The key of the certificate."""

    tls_authority: str | None = None
    """The authority that has signed the certificates of nodes and clients."""

    tls_revoked: str | None = None
    """The PEM file with the lists of revoked certificates."""

    rights: str | None = None
    """The TOML file with the rights and quotas of each client. Without it every client that may connect may do
    everything."""

    audit: str | None = None
    """A file for the audit log: which clients connected, subscribed, were refused or reached a limit."""

    audit_bytes: int = 64 << 20
    """The size at which the audit log begins a new file; it keeps four older ones."""

    handshake_seconds: float = 5.0
    """How long a new connection may take to identify itself."""

    frame_seconds: float = 10.0
    """How long a frame that has begun may bring less than 64 KiB per second before its connection ends."""

    insecure: bool = False
    """Listen without TLS where other machines can connect: each of them may do everything."""

    def checked(self) -> Settings:
        """The same with defaults filled in; an error names the setting that cannot be."""
        for address in (self.listen, self.advertise, self.metrics, *self.join):
            if address is not None:
                split_address(address)
        for pattern in self.keep:
            checked_pattern(pattern)
        choose("fabric", self.fabric, tuple(FABRICS))
        check_spaces(self.spaces, self.fabric)
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
        if self.identifier is not None and not 0 <= self.identifier < WISHES_BELOW:
            raise UsageError(f"identifier is from 0 to {WISHES_BELOW - 1}, not {self.identifier}")
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
            if self.tls_revoked is not None:
                raise UsageError(
                    "tls_revoked means nothing without TLS: give tls_certificate, tls_key and tls_authority"
                )
            return None
        return Tls(
            authority=self.tls_authority,
            certificate=self.tls_certificate,
            key=self.tls_key,
            revoked=self.tls_revoked,
        )

    def watch_certificates(self) -> CertificateWatch | None:
        """Watch the certificates of the node; the library for them is loaded by nodes with TLS only."""
        files = self.tls()
        if files is None:
            return None
        from antiphon.transport.certificate_watch import CertificateWatch

        return CertificateWatch(files)

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
            if address is not None:
                self.check_address(name, address)

    def check_address(self, name: str, address: str) -> None:
        """Refuse an address where other machines can connect, if they come without TLS."""
        if not self.insecure and self.tls() is None and not is_loopback(split_address(address)[0]):
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


def check_spaces(spaces: dict[str, list[str]], fabric: str) -> None:
    """Refuse spaces on fabrics without them, and a pattern that is in two spaces."""
    if spaces and not FABRICS[fabric].has_spaces:
        able = next(name for name, other in FABRICS.items() if other.has_spaces)
        raise UsageError(f"the fabric {fabric!r} has no spaces; leave spaces out, or choose fabric = {able!r}")
    named = [(space, checked_pattern(pattern)) for space, patterns in spaces.items() for pattern in patterns]
    for place, (space, pattern) in enumerate(named):
        for other_space, other in named[:place]:
            if space != other_space and overlap(pattern.split("."), other.split(".")):
                raise UsageError(
                    f"topics of {pattern!r} in the space {space!r} would be in {other_space!r} too, by {other!r}; "
                    "a topic is in one space at most"
                )


def overlap(words: list[str], others: list[str]) -> bool:
    """Whether a topic may match both of two patterns."""
    if not words or not others:
        return not words and not others
    if words[0] == ">" or others[0] == ">":
        return True
    return (words[0] == others[0] or "*" in (words[0], others[0])) and overlap(words[1:], others[1:])


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
            f"{where}: {error}{hint}; antiphon node --help and docs/reference/settings.md name all settings"
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


def read_settings(path: Path, others: dict[str, dict[str, Any]] | None = None, **overrides: Any) -> Settings:
    """Settings from a TOML file; what is given besides counts more.

    ``others`` are tables that are not of the node: what the file says in them is added to these.
    """
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check the name") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    for name, table in (others or {}).items():
        found = values.pop(name, {})
        if not isinstance(found, dict):
            raise UsageError(f"{path}: {name} is a table; write [{name}], and its settings below")
        table.update(found)
    return settings_from({**values, **overrides}, str(path))
