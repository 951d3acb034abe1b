"""Certificates for tests: one authority, a stranger's authority, and the settings that use what they sign."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from antiphon import Tls
from antiphon.transport.certificates import Authority
from antiphon.transport.tls import CLIENT, NODE


class Certificates:
    """What an authority signs, each when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority.make(directory)

    def files(self, role: str, name: str, *hosts: str) -> Tls:
        certificate = self.authority.directory / f"{name}.pem"
        if not certificate.exists():
            self.authority.issue(role, name, hosts or ("127.0.0.1",))
        key = certificate.with_suffix(".key")
        return Tls(authority=str(self.authority.certificate_file), certificate=str(certificate), key=str(key))

    def node(self, name: str, *hosts: str) -> dict[str, Any]:
        """The settings of a node."""
        files = self.files(NODE, name, *hosts)
        return {"tls_certificate": files.certificate, "tls_key": files.key, "tls_authority": files.authority}

    def client(self, name: str) -> Tls:
        """The files of a client with a certificate."""
        return self.files(CLIENT, name)

    @property
    def trust(self) -> Tls:
        """The files of a client without one."""
        return Tls(authority=str(self.authority.certificate_file))


@cache
def kept_directory() -> tempfile.TemporaryDirectory[str]:
    """Making keys takes time: all tests of a process share them."""
    return tempfile.TemporaryDirectory(prefix="antiphon-test-certificates-")


@cache
def ours() -> Certificates:
    """Of the authority that everybody trusts."""
    return Certificates(Path(kept_directory().name) / "ours")


@cache
def theirs() -> Certificates:
    """Of an authority that nobody here trusts."""
    return Certificates(Path(kept_directory().name) / "theirs")
