"""The options for reading and writing topics in Spark: names, defaults and checks.

Names and meanings are those of Kafka's connector where it has them. Spark ignores upper and lower case in them. An
unknown name is refused with the nearest known one, because a misspelt option would otherwise change nothing, silently.
Tokens are never shown, neither here nor by Spark, which hides options with ``token`` in their names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from antiphon.api.topic_names import checked_name
from antiphon.client.server_pool import addresses_of
from antiphon.kernel.errors import PeerError, UsageError
from antiphon.node.acl import read_token
from antiphon.runtime.logging import logger
from antiphon.transport.tls import Tls

EARLIEST: Final = -2
LATEST: Final = -1
"""The values in Kafka's JSON of offsets."""

ACCESS_OPTIONS: Final = ("servers", "cluster", "tlsAuthority", "tlsCertificate", "tlsKey", "token", "tokenFile")
"""The addresses and the credentials, for reading and writing."""

READ_OPTIONS: Final = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "includeHeaders", "includeKeys",
    "patienceSeconds", "failover", "history",
)  # fmt: skip

SPARK_OPTIONS: Final = frozenset({"checkpointlocation"})
"""Options that Spark passes on though they are its own."""

PATIENCE_SECONDS: Final = 30
"""How long the node of a log may be away, by default."""

DEFAULT_CLUSTER: Final = "antiphon"
WHICH_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")

log = logger("spark")

PartitionOffsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""

Shape = TypeVar("Shape")


class DataLossError(PeerError):
    """Data to be read does not exist any more, or cannot be reached."""


class Access(msgspec.Struct, frozen=True):
    """The addresses of nodes, and the credentials."""

    servers: tuple[str, ...]
    cluster: str = DEFAULT_CLUSTER
    tls: Tls | None = None
    token: str = ""

    def __repr__(self) -> str:
        # The token must not appear in logs.
        return f"Access({self.servers!r}, {self.cluster!r}, {self.tls!r})"


class Given:
    """The given options, by any spelling of their names."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        refuse_unknown(options, known)

    def text(self, name: str) -> str | None:
        """The value of an option; None if it was not given."""
        return self._values.get(name.lower())

    def truth(self, name: str, default: bool) -> bool:
        """The value of an option that is true or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise UsageError(f"option {name!r} is true or false, not {value!r}")
        return value.strip().lower() == "true"

    def number(self, name: str, at_least: int) -> int | None:
        """The value of an option that is an integer; None if it was not given."""
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or int(value) < at_least:
            raise UsageError(f"option {name!r} is a whole number of at least {at_least}, not {value!r}")
        return int(value)


def refuse_unknown(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse an unknown option, and name the one that was probably meant."""
    by_small = {name.lower(): name for name in known}
    for name in options:
        if name.lower() in by_small or name.lower() in SPARK_OPTIONS:
            continue
        near = difflib.get_close_matches(name.lower(), list(by_small), 1, 0.0)
        raise UsageError(
            f"there is no option {name!r}; the nearest one is {by_small[near[0]]!r}; all of them are {', '.join(known)}"
        )


def access_from(given: Given) -> Access:
    """The addresses and the credentials."""
    servers = given.text("servers")
    if servers is None:
        raise UsageError(
            "option 'servers' is missing: the addresses of some nodes, such as 127.0.0.1:7400,127.0.0.1:7401"
        )
    authority, certificate, key = (given.text(name) for name in ("tlsAuthority", "tlsCertificate", "tlsKey"))
    if authority is None and (certificate is not None or key is not None):
        raise UsageError("a certificate needs an authority to trust: give the option 'tlsAuthority', too")
    if (certificate is None) != (key is None):
        raise UsageError("a certificate and its key go together: give both 'tlsCertificate' and 'tlsKey', or neither")
    token, token_file = given.text("token"), given.text("tokenFile")
    if token is not None and token_file is not None:
        raise UsageError("options 'token' and 'tokenFile' exclude each other; give one of them")
    if token_file is not None:
        token = read_token(Path(token_file))
    tls = None if authority is None else Tls(authority=authority, certificate=certificate, key=key)
    return Access(tuple(addresses_of(servers)), given.text("cluster") or DEFAULT_CLUSTER, tls, token or "")


class Bound(NamedTuple):
    """Where reading starts or ends: at these offsets, at this time, or at one end of each log."""

    name: str
    offsets: PartitionOffsets | None = None
    time_us: int | None = None
    everywhere: int = LATEST


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a read, with the names of Kafka's connector."""

    access: Access
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None
    start: Bound
    end: Bound
    offsets_per_trigger: int | None = None
    minimal_partitions: int | None = None
    fail_on_data_loss: bool = True
    with_headers: bool = False
    with_keys: bool = False
    patience_seconds: int = PATIENCE_SECONDS
    failover: bool = False
    history: bool = False
    """Whether histories are read, and not the logs of nodes."""

    def lost(self, what: str) -> None:
        """Data cannot be read: fail or, if the options accept data loss, warn and read the rest."""
        if self.fail_on_data_loss:
            raise DataLossError(f"{what}; option failOnDataLoss=false reads the remaining data")
        log.warning("rows are left out", reason=what)

    def wants(self, topic: str) -> bool:
        """Whether a topic of a node is to be read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


def read_options(options: Mapping[str, str], is_stream: bool) -> ReadOptions:
    """All options for reading, checked as far as possible without a node."""
    given = Given(options, (*ACCESS_OPTIONS, *READ_OPTIONS))
    for name in BATCH_ONLY:
        if is_stream and given.text(name) is not None:
            raise UsageError(f"option {name!r} is for batch queries: a stream has no end; leave it out")
    topics, pattern, assigned = which_topics(given)
    patience_seconds = given.number("patienceSeconds", 0)
    refuse_for_histories(given)
    return ReadOptions(
        access=access_from(given),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=start_from(given, is_stream),
        end=end_from(given),
        offsets_per_trigger=given.number("maxOffsetsPerTrigger", 1),
        minimal_partitions=given.number("minPartitions", 1),
        fail_on_data_loss=given.truth("failOnDataLoss", True),
        with_headers=given.truth("includeHeaders", False),
        with_keys=given.truth("includeKeys", False),
        patience_seconds=PATIENCE_SECONDS if patience_seconds is None else patience_seconds,
        failover=failover_from(given, is_stream),
        history=given.truth("history", False),
    )


def refuse_for_histories(given: Given) -> None:
    """Refuse options that mean logs, where histories are read."""
    if not given.truth("history", False):
        return
    for name in ("startingTimestamp", "endingTimestamp", "failover"):
        if given.text(name) is not None:
            raise UsageError(
                f"option {name!r} is for logs; a history is the same at every node: name positions instead"
            )


def failover_from(given: Given, is_stream: bool) -> bool:
    """Whether a stream may continue with another log."""
    failover = given.truth("failover", False)
    if failover and not is_stream:
        raise UsageError("option 'failover' is for streams: a batch query reads from nodes that answer; leave it out")
    if failover and given.text("assign") is not None:
        raise UsageError("options 'failover' and 'assign' exclude each other: assigned logs cannot be replaced")
    return failover


def which_topics(given: Given) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]] | None]:
    """The named topics, or the pattern, or topics with their partitions."""
    named = [name for name in WHICH_TOPICS if given.text(name) is not None]
    if len(named) != 1:
        what = "none of them" if not named else " and ".join(map(repr, named))
        raise UsageError(f"give one of the options {', '.join(map(repr, WHICH_TOPICS))}, not {what}")
    value = given.text(named[0]) or ""
    if named == ["subscribePattern"]:
        try:
            re.compile(value)
        except re.error as error:
            raise UsageError(f"option 'subscribePattern' is no regular expression: {error}") from error
        return (), value, None
    if named == ["assign"]:
        found = from_json("assign", value, dict[str, list[int]], '{"room":[17]}')
        if not found or not all(found.values()):
            raise UsageError("option 'assign' names no partitions; for example: {\"room\":[17]}")
        assigned = {checked_name(topic): tuple(dict.fromkeys(partitions)) for topic, partitions in found.items()}
        return tuple(assigned), None, assigned
    topics = tuple(dict.fromkeys(checked_name(word.strip()) for word in value.split(",") if word.strip()))
    if not topics:
        raise UsageError("option 'subscribe' names no topic; for example: orders,prices")
    return topics, None, None


def start_from(given: Given, is_stream: bool) -> Bound:
    """Where reading starts: by default a stream at the latest offset, a batch query at the earliest."""
    bound = bound_from(given, "startingOffsets", "startingTimestamp", LATEST if is_stream else EARLIEST)
    if not is_stream and bound.offsets is None and bound.everywhere == LATEST:
        raise UsageError("option 'startingOffsets' of a batch query cannot be 'latest': there would be nothing to read")
    if not is_stream and any(LATEST in partitions.values() for partitions in (bound.offsets or {}).values()):
        raise UsageError("an offset -1 (latest) in 'startingOffsets' of a batch query would leave nothing to read")
    return bound


def end_from(given: Given) -> Bound:
    """Where reading ends."""
    bound = bound_from(given, "endingOffsets", "endingTimestamp", LATEST)
    if bound.offsets is None and bound.time_us is None and bound.everywhere == EARLIEST:
        raise UsageError("option 'endingOffsets' cannot be 'earliest': there would be nothing to read")
    if any(EARLIEST in partitions.values() for partitions in (bound.offsets or {}).values()):
        raise UsageError("an offset -2 (earliest) in 'endingOffsets' would leave nothing to read")
    return bound


def bound_from(given: Given, offsets_name: str, time_name: str, default: int) -> Bound:
    """A bound from its two options; a time takes precedence over offsets."""
    time_ms = given.number(time_name, 0)
    if time_ms is not None:
        return Bound(time_name, time_us=time_ms * 1000, everywhere=EARLIEST)
    value = given.text(offsets_name)
    if value is None:
        return Bound(offsets_name, everywhere=default)
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(offsets_name, everywhere=EARLIEST if word == "earliest" else LATEST)
    example = '{"room":{"17":23}}, with -2 for earliest and -1 for latest; or earliest, or latest'
    found = from_json(offsets_name, value, PartitionOffsets, example)
    if any(offset < EARLIEST for partitions in found.values() for offset in partitions.values()):
        raise UsageError(f"option {offsets_name!r} has an offset below -2; it is {example}")
    return Bound(offsets_name, offsets=found)


def from_json(name: str, value: str, shape: type[Shape], example: str) -> Shape:
    """The value of an option that is written in JSON."""
    try:
        return msgspec.json.decode(value, type=shape)
    except msgspec.MsgspecError as error:
        raise UsageError(f"option {name!r} cannot be read ({error}); it looks like {example}") from error
