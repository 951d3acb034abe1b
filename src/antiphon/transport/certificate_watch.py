"""Keeps the certificates of a running node up to date: its own, the authority's, and the list of revoked ones.

A node looks at the files every second. A new certificate is used for the next handshakes; connections that are open go
on. A file that cannot be used changes nothing and is a trouble of the node. Files are read when they have not changed
for one look, so that a certificate and its key may be replaced one after the other.

A certificate that has expired or is on the list is refused, also if its holder is connected: whoever accepts or opens
connections asks :meth:`CertificateWatch.refusal`.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from antiphon.kernel.errors import UsageError
from antiphon.runtime.logging import logger
from antiphon.transport.tls import HOW_TO_MAKE, CertifiedIdentity, Tls, WatchedContext, own_node_name

DAY_SECONDS: Final = 86_400.0
NEAR_DAYS: Final = 14.0
"""So many days before a certificate expires, ``/health`` and the log mention it."""

OTHERS: Final = 0o077
PEM_END: Final = b"-----END X509 CRL-----"

log = logger("certificates")

Stamps = tuple[tuple[int, int, int] | None, ...]


class CertificateWatch:
    """The certificates of one node."""

    def __init__(self, files: Tls, clock: Callable[[], float] = time.time) -> None:
        assert files.certificate is not None and files.key is not None, "nodes have certificates"
        self._files = files
        self._certificate, self._key = files.certificate, files.key
        self._clock = clock
        self._contexts: list[WatchedContext] = []
        self.name = own_node_name(files.certificate)
        self.expires_at = expiry_of(files.certificate)
        if self.expires_at <= clock():
            raise UsageError(
                f"the certificate {files.certificate} expired on {day_of(self.expires_at)} and nobody would accept it; "
                "make a new one (antiphon certs) or check the clock"
            )
        self._revoked = revoked_in(files)
        self._loaded = self._seen = self._stamps()
        self.trouble = ""
        self._has_warned = False
        if os.stat(files.key).st_mode & OTHERS:
            log.warning("other users can read the key of this node", file=files.key, todo="chmod go= FILE")

    def server_context(self, requires_certificate: bool = False) -> ssl.SSLContext:
        """For accepting connections; it follows the files."""
        return self._watched(self._files.server_context(requires_certificate))

    def client_context(self) -> ssl.SSLContext:
        """For opening connections; it follows the files."""
        return self._watched(self._files.client_context())

    def _watched(self, context: WatchedContext) -> WatchedContext:
        context.refusal_of = self.refusal
        self._contexts.append(context)
        return context

    # What counts.

    def refusal(self, identity: CertifiedIdentity) -> str:
        """The reason why a certificate is not accepted any more; empty if it is accepted."""
        if identity.serial in self._revoked:
            return f"the certificate of {identity.role} {identity.name!r} was revoked; ask for a new one"
        if identity.expires_at <= self._clock():
            return (
                f"the certificate of {identity.role} {identity.name!r} expired on {day_of(identity.expires_at)}; "
                "renew it"
            )
        return ""

    def days_left(self) -> float:
        """Days until the certificate of this node expires."""
        return (self.expires_at - self._clock()) / DAY_SECONDS

    def troubles(self) -> list[str]:
        """What is wrong, in words."""
        found = [f"certificates: {self.trouble}"] if self.trouble else []
        if self.days_left() <= 0:
            found.append(
                f"the certificate of this node expired on {day_of(self.expires_at)}; replace {self._certificate}"
            )
        return found

    def notes(self) -> list[str]:
        """What is not wrong yet."""
        days = self.days_left()
        return [f"the certificate of this node expires in {days:.1f} days"] if 0 < days < NEAR_DAYS else []

    # Reading again.

    def poll(self) -> None:
        """Read the files again if they have changed and are left alone since; mention an expiry that is near."""
        stamps = self._stamps()
        if stamps != self._loaded and stamps == self._seen:
            self.read_again()
        self._seen = stamps
        if self.notes() and not self._has_warned:
            self._has_warned = True
            log.warning("the certificate of this node expires soon", days=round(self.days_left(), 1))

    def read_again(self) -> None:
        """Read the files again; if one cannot be used, everything stays as it was."""
        self._loaded = self._seen = self._stamps()
        try:
            self._load()
        except UsageError as error:
            self.trouble = f"{error}; the certificates stay as they were"
            log.error("the certificates stay as they were", reason=str(error))
        else:
            self.trouble = ""
            self._has_warned = False
            log.info("read the certificates again", days_left=round(self.days_left(), 1), revoked=len(self._revoked))

    def _load(self) -> None:
        self._files.client_context()  # refuses files that do not fit together
        name, expires_at = own_node_name(self._certificate), expiry_of(self._certificate)
        if name != self.name:
            raise UsageError(f"{self._certificate} is for node {name!r}, this is {self.name!r}; restart to change it")
        if expires_at <= self._clock():
            raise UsageError(f"{self._certificate} expired on {day_of(expires_at)}; make a new one (antiphon certs)")
        revoked = revoked_in(self._files)
        for context in self._contexts:
            context.load_verify_locations(self._files.authority)
            context.load_cert_chain(self._certificate, self._key)
        self._revoked, self.expires_at = revoked, expires_at

    def _stamps(self) -> Stamps:
        """A stamp that changes when a file does."""
        return tuple(
            stamp_of(path) for path in (self._certificate, self._key, self._files.authority, self._files.revoked)
        )


def stamp_of(path: str | None) -> tuple[int, int, int] | None:
    """A stamp that changes when a file does; None if there is none."""
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def day_of(seconds: float) -> str:
    """A date for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def expiry_of(certificate: str) -> float:
    """When a certificate expires, in seconds since 1970; its file is known to hold one."""
    found = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
    return found.not_valid_after_utc.timestamp()


def revoked_in(files: Tls) -> frozenset[int]:
    """The serial numbers of revoked certificates, from lists that the authority has signed."""
    if files.revoked is None:
        return frozenset()
    try:
        content = Path(files.revoked).read_bytes()
        authorities = x509.load_pem_x509_certificates(Path(files.authority).read_bytes())
        lists = [x509.load_pem_x509_crl(part + PEM_END) for part in content.split(PEM_END)[:-1]]
    except OSError as error:
        raise UsageError(f"cannot read {files.revoked}: {error.strerror}; check the name") from error
    except ValueError as error:
        raise UsageError(
            f"{files.revoked} is no list of revoked certificates; antiphon certs revoke makes one"
        ) from error
    if not lists:
        raise UsageError(f"{files.revoked} is no list of revoked certificates; antiphon certs revoke makes one")
    for each in lists:
        if not any(is_signed_by(each, authority) for authority in authorities):
            raise UsageError(f"{files.revoked} is not signed by the authority in {files.authority}; {HOW_TO_MAKE}")
    return frozenset(certificate.serial_number for each in lists for certificate in each)


def is_signed_by(revoked: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    """Whether an authority has signed a list."""
    key = authority.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey):
        return False
    return revoked.issuer == authority.subject and revoked.is_signature_valid(key)
