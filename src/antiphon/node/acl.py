"""The rights of clients at a node: a TOML file that is read again when it changes.

A client says who it is by a token, or by its certificate::

    [clients.shop]
    token = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    publish = ["orders.>"]
    subscribe = ["orders.>", "prices.*"]
    consume = ["orders.paid"]
    serve = ["prices.get"]
    manage = ["orders.>"]

    [clients.operator]
    admin = true

Of a token the file holds the hash alone. Tokens are long and random, so one round of a plain hash is enough: there is
nothing to be guessed. A file that cannot be used leaves everything as it was, and the node says so.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from antiphon.api.topic_names import CALLERS, SERVING, checked_pattern, matches
from antiphon.kernel.errors import DeniedError, UsageError
from antiphon.node.quotas import Quotas
from antiphon.runtime.logging import logger
from antiphon.transport.tls import CLIENT, NAME_PATTERN, CertifiedIdentity

TOKEN_BYTES: Final = 32
HASH_PREFIX: Final = "sha256:"
HASH_DIGITS: Final = 64
WHO: Final = "give a token (token=, --token-file, ANTIPHON_TOKEN) or show a certificate (tls=, --tls-certificate)"

log = logger("rights")


class ClientTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table of one client: patterns of topics, and whether it may see the figures of nodes."""

    token: str | None = None
    publish: list[str] = []
    subscribe: list[str] = []
    consume: list[str] = []
    serve: list[str] = []
    manage: list[str] = []
    admin: bool = False
    quotas: Quotas = Quotas()

    def may_publish(self, topic: str) -> bool:
        """Whether the client may publish there: also replies, and that it serves or looks for programs that do."""
        if topic.startswith(SERVING):
            return self.may_serve(topic.removeprefix(SERVING))
        asked = topic.removeprefix(CALLERS)
        return any(matches(pattern, asked) for pattern in self.publish) or (asked == topic and self.may_serve(topic))

    def may_subscribe(self, wanted: str) -> bool:
        """Whether the client may see all that a topic or pattern stands for."""
        if wanted.startswith(CALLERS) and self.may_serve(wanted.removeprefix(CALLERS)):
            return True
        if wanted.startswith(SERVING) and any(covers(each, wanted.removeprefix(SERVING)) for each in self.publish):
            return True
        return any(covers(pattern, wanted) for pattern in self.subscribe) or self.may_serve(wanted)

    def may_consume(self, topic: str) -> bool:
        """Whether the client may be a member of named consumers of a topic."""
        return any(covers(pattern, topic) for pattern in self.consume)

    def may_serve(self, topic: str) -> bool:
        """Whether the client may answer the requests on a topic."""
        return any(covers(pattern, topic) for pattern in self.serve)

    def may_manage(self, topic: str) -> bool:
        """Whether the client may make, change and remove a topic with a history, and its consumers."""
        return self.admin or any(covers(pattern, topic) for pattern in self.manage)


class RightsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    clients: dict[str, ClientTable] = {}
    quotas: Quotas = Quotas()
    """Those of every client that has no other."""


EVERYTHING: Final = ClientTable(publish=[">"], subscribe=[">"], consume=[">"], serve=[">"], admin=True)


class Holder(msgspec.Struct, frozen=True):
    """A client as a node knows it: what it is called, the hash of the token by which it was known, and its rights."""

    name: str
    token_hash: str
    rights: ClientTable


ANYBODY: Final = Holder("", "", EVERYTHING)


class Rights:
    """The rights of all clients at one node; without a file whoever is let in may do everything."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._clients: dict[str, ClientTable] = {}
        self._stamp = self._stamp_now()
        self.trouble = ""
        if self._path is not None:
            self._clients = read_rights(self._path)

    def poll(self) -> bool:
        """Read the file again if it has changed; whether the rights are others now."""
        stamp = self._stamp_now()
        return stamp != self._stamp and self.read_again()

    def read_again(self) -> bool:
        """Read the file again; if it cannot be used, the old rights stay."""
        if self._path is None:
            return False
        self._stamp = self._stamp_now()
        try:
            clients = read_rights(self._path)
        except UsageError as error:
            self.trouble = f"{error}; the old rights stay"
            log.error("the new rights cannot be read; the old ones stay", reason=str(error))
            return False
        self.trouble = ""
        is_new = clients != self._clients
        self._clients = clients
        log.info("the rights were read again", clients=len(clients), changed=is_new)
        return is_new

    def _stamp_now(self) -> tuple[int, int, int] | None:
        """A stamp that changes when the file does."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    # Who is who.

    def holder(self, identity: CertifiedIdentity | None, token: str, has_tls: bool) -> Holder:
        """The holder behind a token or a certificate; :class:`DeniedError` if nobody knows it."""
        if self._path is None:
            if identity is not None:
                return Holder(identity.name, "", EVERYTHING)
            if has_tls:
                raise DeniedError(
                    "this node has no file of rights, in which tokens would be: show a certificate "
                    "(tls=, --tls-certificate), or give the node such a file (rights)"
                )
            return ANYBODY
        if token:
            found = self._by_token(token_hash(token))
            if found is None:
                raise DeniedError("the token is not known here; check that it is whole and is meant for this cluster")
            return found
        if identity is None:
            raise DeniedError(f"this node serves only clients that it can identify: {WHO}")
        if identity.role != CLIENT:
            raise DeniedError(
                f"this certificate is for the {identity.role} {identity.name!r}; show one of a client, or give a token"
            )
        table = self._clients.get(identity.name)
        if table is None:
            raise DeniedError(f"client {identity.name!r} is not in the rights of this node; have it added there")
        return Holder(identity.name, "", table)

    def _by_token(self, wanted: str) -> Holder | None:
        found = None
        # All are compared, so that the time says nothing about the place of the right one.
        for name, table in self._clients.items():
            if table.token is not None and hmac.compare_digest(table.token, wanted):
                found = Holder(name, wanted, table)
        return found

    def renewed(self, holder: Holder) -> Holder | None:
        """The same client with the rights that it has now; None if it would not be let in any more."""
        if self._path is None:
            return holder
        table = self._clients.get(holder.name)
        if table is None or (holder.token_hash and holder.token_hash != table.token):
            return None
        return Holder(holder.name, holder.token_hash, table)


def read_rights(path: Path) -> dict[str, ClientTable]:
    """The clients of a file; an error says what is wrong with it, without what is secret in it."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), RightsFile)
    except OSError as error:
        raise UsageError(f"cannot read the rights in {path}: {error.strerror}; check the name") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {error}; a client has a table [clients.NAME] with token, publish, subscribe, consume, "
            "serve, manage, admin and quotas"
        ) from error
    hashes: set[str] = set()
    found.quotas.check(f"{path}: [quotas]")
    for name, table in found.clients.items():
        check_client(path, name, table)
        if table.token is None:
            continue
        digits = table.token.removeprefix(HASH_PREFIX)
        if digits == table.token or len(digits) != HASH_DIGITS or not set(digits) <= set("0123456789abcdef"):
            raise UsageError(
                f"{path}: the token of client {name!r} is no hash; antiphon certs token prints one ({HASH_PREFIX}...)"
            )
        if table.token in hashes:
            raise UsageError(f"{path}: client {name!r} has the token of another one; give each its own")
        hashes.add(table.token)
    return {
        name: msgspec.structs.replace(table, quotas=table.quotas.over(found.quotas))
        for name, table in found.clients.items()
    }


def check_client(path: Path, name: str, table: ClientTable) -> None:
    """Refuse a client with a name, a quota or a pattern that means nothing."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{path}: {name!r} is not a valid name of a client: use letters, digits, dots, - and _, 64 at most"
        )
    table.quotas.check(f"{path}: [clients.{name}.quotas]")
    for pattern in (*table.publish, *table.subscribe, *table.consume, *table.serve, *table.manage):
        try:
            checked_pattern(pattern)
        except UsageError as error:
            raise UsageError(f"{path}: client {name!r}: {error}") from error


def covers(pattern: str, wanted: str) -> bool:
    """Whether a pattern matches whatever another one matches."""
    words, wanted_words = pattern.split("."), wanted.split(".")
    for place, word in enumerate(words):
        if word == ">":
            return len(wanted_words) > place
        if place >= len(wanted_words) or wanted_words[place] == ">":
            return False
        if word not in ("*", wanted_words[place]):
            return False
    return len(words) == len(wanted_words)


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_hash(token: str) -> str:
    """The hash of a token, as the file of rights holds it."""
    return HASH_PREFIX + hashlib.sha256(token.encode()).hexdigest()


def read_token(path: Path) -> str:
    """A token from a file of its own."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"cannot read the token in {path}: {error.strerror}; check the name") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} holds no token; antiphon certs token prints one") from error
    if not token or any(character.isspace() for character in token):
        raise UsageError(f"{path} holds no token; antiphon certs token prints one")
    return token
