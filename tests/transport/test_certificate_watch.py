"""Certificates of running nodes: renewed without a restart, revoked, and expired, over real connections."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from msgspec.structs import replace

import antiphon
from antiphon import DeniedError, Node, Tls, UsageError
from antiphon.transport.certificate_watch import CertificateWatch
from antiphon.transport.certificates import Authority
from antiphon.transport.tls import CLIENT, NODE, CertifiedIdentity
from tests.node.support import running, until

SECOND = 1 / 86_400
"""In days."""


class Files:
    """The files of one cluster, which a test replaces while nodes run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority.make(directory / "authority")
        self.revoked = directory / "revoked.pem"
        self.authority.issue(CLIENT, "nobody")
        self.revoke("nobody")

    def issue(self, role: str, name: str, days: float = 30.0) -> Tls:
        """A certificate in place of the one before, if there is one."""
        for suffix in (".pem", ".key"):
            (self.authority.directory / f"{name}{suffix}").unlink(missing_ok=True)
        for path in self.authority.issue(role, name, ("127.0.0.1",), days):
            shutil.copy(path, self.directory / f"{path.name}.new")
            (self.directory / f"{path.name}.new").rename(self.directory / path.name)
        place = self.directory / name
        return Tls(authority=str(self.authority.certificate_file), certificate=f"{place}.pem", key=f"{place}.key")

    def node(self, name: str, days: float = 30.0) -> dict[str, Any]:
        files = self.issue(NODE, name, days)
        return {
            "tls_certificate": files.certificate,
            "tls_key": files.key,
            "tls_authority": files.authority,
            "tls_revoked": str(self.revoked),
        }

    def revoke(self, *names: str) -> None:
        shutil.copy(self.authority.revoke(names), self.directory / "new")
        (self.directory / "new").rename(self.revoked)


async def publish_late(client: antiphon.Client) -> None:
    await client.publish("room", b"too late")
    await client.flush()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def http(node: Node, path: str) -> tuple[int, str]:
    host, _, port = node.metrics_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def test_a_node_does_not_start_with_an_expired_certificate(files: Files) -> None:
    async def test() -> None:
        settings = files.node("alpha", 0.1 * SECOND)
        await asyncio.sleep(1.2)
        with pytest.raises(UsageError, match=r"alpha.pem expired on .* and nobody would accept it; make a new one"):
            await antiphon.start(**settings)

    running(test)


def test_a_new_certificate_is_used_without_a_restart(files: Files) -> None:
    async def test() -> None:
        shop = files.issue(CLIENT, "shop")
        async with (
            antiphon.start(**files.node("alpha", 5), metrics="127.0.0.1:0") as node,
            antiphon.connect(node.address, tls=shop) as before,
        ):
            assert node._live.certificates is not None
            status, body = await http(node, "/health")
            assert status == 200 and "the certificate of this node expires in 5.0 days" in body
            assert "antiphon_certificate_days 4.9" in (await http(node, "/metrics"))[1]
            files.node("alpha", 90)
            await until(lambda: node._live.certificates is not None and node._live.certificates.days_left() > 89)
            assert (await http(node, "/health")) == (200, "ok\n")
            async with antiphon.connect(node.address, tls=shop) as after:
                assert after._live._connection is not None
                transport = after._live._connection.transport
                assert transport is not None
                shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                found = x509.load_der_x509_certificate(shown)
                assert found.not_valid_after_utc.timestamp() == node._live.certificates.expires_at
                await after.publish("room", b"new")
            await before.publish("room", b"the connection from before goes on")

    running(test)


def test_files_that_cannot_be_used_change_nothing_and_are_a_trouble(files: Files) -> None:
    async def test() -> None:
        shop = files.issue(CLIENT, "shop")
        settings = files.node("alpha")
        async with antiphon.start(**settings, metrics="127.0.0.1:0") as node:
            good = Path(settings["tls_certificate"]).read_bytes()
            for content, reason in (
                (b"nothing", "alpha.pem"),
                (Path(files.issue(NODE, "beta").certificate or "").read_bytes(), "key"),
            ):
                Path(settings["tls_certificate"]).write_bytes(content)
                await until(lambda: bool(node._live.certificates and node._live.certificates.trouble))
                status, body = await http(node, "/health")
                assert status == 503 and reason in body and "the certificates stay as they were" in body
                async with antiphon.connect(node.address, tls=shop) as client:
                    await client.publish("room", b"as before")
                Path(settings["tls_certificate"]).write_bytes(good)
                await until(lambda: not (node._live.certificates and node._live.certificates.trouble))
            assert (await http(node, "/health"))[0] == 200

    running(test)


def test_a_client_whose_certificate_is_revoked_is_disconnected_and_stays_out(files: Files) -> None:
    async def test() -> None:
        shop, bank = files.issue(CLIENT, "shop"), files.issue(CLIENT, "bank")
        async with (
            antiphon.start(**files.node("alpha")) as node,
            antiphon.connect(node.address, tls=bank) as honest,
        ):
            client = await antiphon.connect(node.address, tls=shop)
            await client.publish("room", b"while it may")
            assert len(node._live.clients) == 2
            files.revoke("shop")
            await until(lambda: len(node._live.clients) == 1)
            with pytest.raises(DeniedError, match="the certificate of client 'shop' was revoked; ask for a new one"):
                await publish_late(client)
            with pytest.raises(DeniedError, match="was revoked"):
                await antiphon.connect(node.address, tls=shop)
            await honest.publish("room", b"others go on")
            await client.close()
            assert node._live.refused_connections >= 2

    running(test)


def test_a_client_whose_certificate_expires_is_disconnected(files: Files) -> None:
    async def test() -> None:
        async with antiphon.start(**files.node("alpha")) as node:
            client = await antiphon.connect(node.address, tls=files.issue(CLIENT, "shop", 4 * SECOND))
            await client.publish("room", b"while it may")
            await until(lambda: not node._live.clients)
            with pytest.raises(DeniedError, match="the certificate of client 'shop' expired on"):
                await publish_late(client)
            await client.close()

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_node_whose_certificate_is_revoked_is_cut_off_in_both_directions(files: Files, fabric: str) -> None:
    async def test() -> None:
        async with (
            antiphon.start(fabric=fabric, leave_seconds=1.0, **files.node("alpha")) as alpha,
            antiphon.start(fabric=fabric, leave_seconds=1.0, join=[alpha.address], **files.node("beta")) as beta,
        ):
            beta._live.host._polling.cancel()  # type: ignore[union-attr] # the revoked node does not look at the list
            assert [link.identity.name for link in alpha._live.host._outgoing if link.identity] == ["beta"]
            files.revoke("beta")
            await until(lambda: not any(each.certified_name == "beta" for each in alpha._live.host.incoming()))
            await until(lambda: not any(link.identity and not link.is_closed for link in alpha._live.host._outgoing))
            await asyncio.sleep(1.5)
            assert not any(link.identity and not link.is_closed for link in alpha._live.host._outgoing), "it came back"

    running(test)


def test_a_node_whose_certificate_expires_says_so(files: Files) -> None:
    async def test() -> None:
        async with antiphon.start(**files.node("alpha", 3 * SECOND), metrics="127.0.0.1:0") as node:
            assert (await http(node, "/health"))[0] == 200
            await until(lambda: node._live.certificates is not None and node._live.certificates.days_left() < 0)
            status, body = await http(node, "/health")
            assert status == 503 and "the certificate of this node expired on" in body
            assert "antiphon_healthy 0.0" in (await http(node, "/metrics"))[1]
            files.node("alpha", 90)
            node._live.read_again()
            assert (await http(node, "/health")) == (200, "ok\n")

    running(test)


def test_a_list_that_another_authority_has_signed_is_refused(files: Files, tmp_path: Path) -> None:
    async def test() -> None:
        other = Authority.make(tmp_path / "other")
        other.issue(CLIENT, "shop")
        settings = files.node("alpha")
        for path, reason in (
            (other.revoke(["shop"]), "is not signed by the authority in"),
            (tmp_path / "none.pem", "cannot read"),
            (other.certificate_file, "is no list of revoked certificates"),
        ):
            with pytest.raises(UsageError, match=reason):
                await antiphon.start(**{**settings, "tls_revoked": str(path)})

    running(test)


def test_a_key_that_others_can_read_is_mentioned(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    tls = files.issue(NODE, "alpha")
    with caplog.at_level(logging.WARNING, "antiphon"):
        CertificateWatch(tls)
        assert not caplog.records
        Path(tls.key or "").chmod(0o640)
        CertificateWatch(tls)
    assert [record.__dict__["event"] for record in caplog.records] == ["other users can read the key of this node"]


def test_two_lists_in_one_file_count_both(files: Files) -> None:
    tls = files.issue(NODE, "alpha")
    files.authority.issue(CLIENT, "shop")
    first = files.revoked.read_bytes()
    files.revoked.write_bytes(first + files.authority.revoke(["shop"]).read_bytes())
    watch = CertificateWatch(replace(tls, revoked=str(files.revoked)))
    serials = {files.authority._serial_of(name) for name in ("nobody", "shop")}
    assert all(watch.refusal(CertifiedIdentity(CLIENT, "x", (), serial)) for serial in serials)
    assert not watch.refusal(CertifiedIdentity(CLIENT, "x", (), files.authority._serial_of("alpha")))
