"""Certificates for development and small clusters: an authority, and what it signs.

An authority is a key and a certificate in a directory. Everything is written so that only its owner can read it, and
nothing is ever overwritten. The authority's key makes certificates for anybody: keep it away from nodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from antiphon.kernel.errors import UsageError
from antiphon.transport.tls import NAME_PATTERN, NODE, ROLES, SCHEME

AUTHORITY: Final = "authority"
REVOKED: Final = "revoked"
DEFAULT_DAYS: Final = 365
LIST_DAYS: Final = 3650
"""Nodes go on with a list that is older, so this is for other programs."""

DEFAULT_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
EARLY: Final = timedelta(hours=1)
"""Clocks of machines differ: a certificate is valid from a little before it was made."""


class Authority:
    """Signs certificates."""

    def __init__(self, directory: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.directory = directory
        self.certificate_file = directory / f"{AUTHORITY}.pem"
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls, directory: Path, name: str = "antiphon", days: float = DEFAULT_DAYS) -> Authority:
        """A new authority in a directory, which is made if there is none."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_absent(directory, AUTHORITY)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = named(f"{name} development authority")
        builder = draft(subject, subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(key_usage(is_authority=True), critical=True)
        certificate = builder.sign(key, hashes.SHA256())
        write_pair(directory, AUTHORITY, key, certificate)
        return cls(directory, key, certificate)

    @classmethod
    def open(cls, directory: Path) -> Authority:
        """The authority that a directory holds."""
        try:
            key = serialization.load_pem_private_key((directory / f"{AUTHORITY}.key").read_bytes(), password=None)
            certificate = x509.load_pem_x509_certificate((directory / f"{AUTHORITY}.pem").read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read the authority in {directory}: {error.strerror}; check the name") from error
        except (ValueError, TypeError) as error:
            raise UsageError(f"{directory} holds a damaged authority; make another one in another directory") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UsageError(f"the authority in {directory} was made by another program; make one in another directory")
        return cls(directory, key, certificate)

    @classmethod
    def exists_in(cls, directory: Path) -> bool:
        """Whether a directory holds an authority."""
        return (directory / f"{AUTHORITY}.pem").exists() or (directory / f"{AUTHORITY}.key").exists()

    def issue(
        self, role: str, name: str, hosts: Sequence[str] = DEFAULT_HOSTS, days: float = DEFAULT_DAYS
    ) -> tuple[Path, Path]:
        """A certificate for a node or a client; its file and that of its key."""
        assert role in ROLES, "the caller chooses among the roles"
        if not NAME_PATTERN.fullmatch(name) or name == AUTHORITY:
            raise UsageError(f"{name!r} is no name for a {role}: use letters, digits, dots, - and _, 64 at most")
        check_absent(self.directory, name)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = draft(named(f"{role} {name}"), self._certificate.subject, key, days)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"{SCHEME}{role}/{name}")]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role == NODE:
            names += [host_name(host) for host in hosts]
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(key_usage(is_authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        return write_pair(self.directory, name, key, certificate)

    def revoke(self, names: Sequence[str]) -> Path:
        """Put the certificates of these names on the list of revoked ones; gives the file of the list."""
        path = self.directory / f"{REVOKED}.pem"
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        builder = builder.last_update(now).next_update(now + timedelta(days=LIST_DAYS))
        known: set[int] = set()
        if path.exists():
            for entry in x509.load_pem_x509_crl(path.read_bytes()):
                builder, known = builder.add_revoked_certificate(entry), known | {entry.serial_number}
        for name in names:
            serial = self._serial_of(name)
            if serial not in known:
                entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
                builder, known = builder.add_revoked_certificate(entry), known | {serial}
        signed = builder.sign(self._key, hashes.SHA256())
        unfinished = path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        write_secret(unfinished, signed.public_bytes(serialization.Encoding.PEM))
        unfinished.rename(path)
        return path

    def _serial_of(self, name: str) -> int:
        path = self.directory / f"{name}.pem"
        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is no certificate; name one that this authority has made") from error
        if found.issuer != self._certificate.subject or name == AUTHORITY:
            raise UsageError(f"{path} was not signed by the authority in {self.directory}; ask the one that signed it")
        return found.serial_number


def named(common_name: str) -> x509.Name:
    """A subject; people read it, nodes do not."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    """The parts that all certificates have."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - EARLY).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def key_usage(is_authority: bool) -> x509.KeyUsage:
    """An authority signs certificates, all others sign handshakes."""
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def host_name(host: str) -> x509.GeneralName:
    """A host as certificates name it."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise UsageError(f"{host!r} is no host; write a name or an address without port") from error


def check_absent(directory: Path, name: str) -> None:
    """Refuse to overwrite."""
    for path in (directory / f"{name}.pem", directory / f"{name}.key"):
        if path.exists():
            raise UsageError(f"{path} exists; nothing is overwritten: choose another name or directory, or remove it")


def write_pair(
    directory: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> tuple[Path, Path]:
    """A certificate and its key as two files that only their owner can read."""
    key_bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate_file, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    write_secret(key_file, key_bytes)
    write_secret(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate_file, key_file


def write_secret(path: Path, content: bytes) -> None:
    """A new file that only its owner can read, from its first moment on."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another directory") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
