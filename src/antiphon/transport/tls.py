"""TLS: who the other end of a connection is, as its certificate says.

Certificates are signed by the authority of the cluster and name who holds them in a URI among their alternative names:
``antiphon://node/NAME`` or ``antiphon://client/NAME``. Certificates of nodes also name their hosts. Both ends of
a connection between nodes show one; a client may show one.

The name of a node in the cluster begins with the name in its certificate (:func:`instance_of`). So whoever speaks
for a node has that node's certificate: it cannot take the name of another, nor live at another's address. That nobody
replays what was recorded is TLS's own doing: each handshake answers fresh random bytes.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from antiphon.kernel.errors import DeniedError, ProtocolError, UsageError

if TYPE_CHECKING:
    import asyncio

NODE: Final = "node"
CLIENT: Final = "client"
ROLES: Final = (NODE, CLIENT)
SCHEME: Final = "antiphon://"
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HOW_TO_MAKE: Final = "antiphon certs makes certificates"


class WatchedContext(ssl.SSLContext):
    """Settings of TLS, with a judge of certificates that were valid once."""

    refusal_of: Callable[[CertifiedIdentity], str] | None = None
    """Gives the reason why a certificate is not accepted; empty if it is."""


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files for TLS, in PEM format: the trusted authority, this program's certificate, and its key.

    A client that identifies itself by a token needs the authority only.
    """

    authority: str
    """The file with the certificates of the trusted authority."""

    certificate: str | None = None
    """The file with this program's own certificate."""

    key: str | None = None
    """The file with the key of that certificate."""

    revoked: str | None = None
    """The file with the lists of revoked certificates; only nodes look at it."""

    def server_context(self, requires_certificate: bool = False) -> WatchedContext:
        """For those who are connected to. Clients may come without a certificate, unless all need one."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED if requires_certificate else ssl.CERT_OPTIONAL
        # Nobody resumes a session: its tickets would be one more thing that could be stolen.
        context.num_tickets = 0
        return context

    def client_context(self) -> WatchedContext:
        """For those who connect: the other end must have a certificate for the host that is meant."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> WatchedContext:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("a certificate and its key go together: give both or none")
        context = WatchedContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        loaded = self.authority
        try:
            context.load_verify_locations(self.authority)
            if self.certificate is not None and self.key is not None:
                loaded = f"{self.certificate} with the key {self.key}"
                # Without this a key with a passphrase would ask for it at the terminal.
                context.load_cert_chain(self.certificate, self.key, password=refuse_passphrase)
        except ssl.SSLError as error:
            reason = error.reason or "wrong format"
            raise UsageError(f"cannot use {loaded} for TLS: {reason}; {HOW_TO_MAKE} that fit together") from error
        except OSError as error:
            raise UsageError(f"cannot read {loaded}: {error.strerror}; check the name; {HOW_TO_MAKE}") from error
        return context


def refuse_passphrase() -> str:
    """Called for a key that is encrypted."""
    raise UsageError("the key is protected by a passphrase, for which nobody can be asked; give one without")


class CertifiedIdentity(msgspec.Struct, frozen=True):
    """The holder of a certificate, and the hosts at which it lives."""

    role: str
    name: str
    hosts: tuple[str, ...]
    serial: int = 0
    expires_at: float = inf
    """In seconds since 1970."""

    def lives_at(self, host: str) -> bool:
        """Whether the certificate is for this host; ``*.`` at the beginning of a name stands for one word."""
        wanted = plain_host(host)
        parent = wanted.partition(".")[2]
        return any(own == wanted or (parent and own == f"*.{parent}") for own in self.hosts)


def plain_host(host: str) -> str:
    """One way of writing a host."""
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower()


def identity_of(transport: asyncio.BaseTransport) -> CertifiedIdentity | None:
    """The identity at the other end; None if it has shown no certificate."""
    found = transport.get_extra_info("ssl_object")
    certificate: dict[str, Any] | None = None if found is None else found.getpeercert()
    if not certificate or "subjectAltName" not in certificate:
        return None
    identity = identity_in(certificate["subjectAltName"])
    if identity is None:
        return None
    expires_at = ssl.cert_time_to_seconds(certificate["notAfter"])
    return replace(identity, serial=int(certificate["serialNumber"], 16), expires_at=expires_at)


def identity_in(alternative_names: tuple[tuple[str, str], ...]) -> CertifiedIdentity | None:
    """The identity in the alternative names of a certificate; None if it is none of ours."""
    named = [value.removeprefix(SCHEME) for kind, value in alternative_names if kind == "URI"]
    hosts = tuple(plain_host(value) for kind, value in alternative_names if kind in ("DNS", "IP Address"))
    for role, separator, name in (each.partition("/") for each in named):
        if separator and role in ROLES and NAME_PATTERN.fullmatch(name):
            return CertifiedIdentity(role, name, hosts)
    return None


def own_identity(certificate: str) -> CertifiedIdentity:
    """Who one is oneself."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except OSError as error:
        raise UsageError(f"cannot read {certificate}: {error.strerror}; check the name") from error
    except (ValueError, x509.ExtensionNotFound) as error:
        raise UsageError(f"{certificate} is no certificate with alternative names; {HOW_TO_MAKE}") from error
    plain = [("URI", each) for each in names.get_values_for_type(x509.UniformResourceIdentifier)]
    plain += [("DNS", each) for each in names.get_values_for_type(x509.DNSName)]
    plain += [("IP Address", str(each)) for each in names.get_values_for_type(x509.IPAddress)]
    identity = identity_in(tuple(plain))
    if identity is None:
        raise UsageError(f"{certificate} does not say whose it is ({SCHEME}node/NAME); {HOW_TO_MAKE}")
    return identity


def own_node_name(certificate: str | None) -> str:
    """The name in the certificate of a node."""
    assert certificate is not None, "only nodes with TLS are asked"
    identity = own_identity(certificate)
    if identity.role != NODE:
        raise UsageError(f"{certificate} is for a {identity.role}; a node needs one of a node")
    return identity.name


def instance_of(name: str, life: str) -> str:
    """The name of one life of a node, if it has a certificate with a name."""
    return f"{name}/{life}"


def check_node(identity: CertifiedIdentity | None, instance: str, host: str) -> None:
    """Refuse whoever says to be a node, or at a place, that its certificate does not say."""
    if identity is None or identity.role != NODE:
        shown = "shows no certificate" if identity is None else f"shows a certificate of a {identity.role}"
        raise ProtocolError(f"the other end says it is a node and {shown}; give it one of a node")
    if instance.partition("/")[0] != identity.name or "/" not in instance:
        raise ProtocolError(f"the holder of the certificate {identity.name!r} says that it is {instance!r}")
    if not identity.lives_at(host):
        hosts = ", ".join(identity.hosts) or "no host"
        raise ProtocolError(
            f"node {identity.name!r} says that it lives at {host}; its certificate is for {hosts}: make one for {host}"
        )


def check_meant(identity: CertifiedIdentity | None, instance: str) -> None:
    """Refuse whoever listens where another node is meant; ``instance`` is empty if any will do."""
    if identity is None or identity.role != NODE:
        raise ProtocolError("whoever listens there has no certificate of a node")
    if instance and instance.partition("/")[0] != identity.name:
        raise ProtocolError(f"node {identity.name!r} listens where {instance.partition('/')[0]!r} is meant")


def check_trusted(context: ssl.SSLContext | None, identity: CertifiedIdentity | None) -> None:
    """Refuse a certificate that has expired or was revoked, also in the middle of a connection."""
    if identity is None or not isinstance(context, WatchedContext) or context.refusal_of is None:
        return
    reason = context.refusal_of(identity)
    if reason:
        # A client is told to give up; a node tries again, and perhaps has a new certificate then.
        raise ProtocolError(reason) if identity.role == NODE else DeniedError(reason)


def reason_of(error: BaseException) -> str:
    """Why a connection was not to be had, in words."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}; check the authority and the address"
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":
            return "it speaks no TLS; leave TLS out, or let it listen with a certificate"
        return f"TLS failed: {error.reason or error}; check that both have certificates of the same authority"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can connect there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def tls_from(values: Mapping[str, str]) -> Tls:
    """Files for TLS from names and values."""
    try:
        return msgspec.convert(dict(values), Tls)
    except msgspec.ValidationError as error:
        raise UsageError(f"tls: {error}; it has the files authority, certificate and key") from error
