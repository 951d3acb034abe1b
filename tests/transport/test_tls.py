"""TLS: who may connect to whom, and that nobody can say to be another."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon import DeniedError, JoinError, Node, PeerError, Tls, UsageError
from antiphon.kernel.errors import ProtocolError
from antiphon.membership.address_book import AddressBook
from antiphon.membership.messages import PROTOCOL_VERSION, Hello, Peer, PeerAddresses
from antiphon.node.local_cluster import free_addresses
from antiphon.node.settings import Settings, settings_from
from antiphon.transport.links import split_address
from antiphon.transport.tls import CLIENT, NODE, CertifiedIdentity, check_meant, check_node, identity_in, is_loopback
from tests.cluster.proxy import Proxy
from tests.node.secure import ours, theirs
from tests.node.support import outcome, running, take_values, until

NO_BROKERS: dict[str, Any] = {}


@asynccontextmanager
async def pair(fabric: str, **settings: Any) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes with certificates, alpha and beta."""
    async with (
        antiphon.start(fabric=fabric, **ours().node("alpha"), **settings) as alpha,
        antiphon.start(fabric=fabric, join=[alpha.address], **ours().node("beta"), **settings) as beta,
    ):
        yield alpha, beta


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_nodes_and_clients_with_certificates_talk_to_each_other(fabric: str) -> None:
    async def test() -> None:
        async with (
            pair(fabric) as (alpha, beta),
            antiphon.connect(beta.address, tls=ours().client("shop")) as client,
        ):
            subscription = await alpha.subscribe("room").ready()
            await client.publish("room", b"x" * 1_000_000)
            await client.publish("room", b"short")
            assert await take_values(subscription, 2) == [b"x" * 1_000_000, b"short"]

    running(test)


def test_what_travels_is_encrypted() -> None:
    async def test() -> None:
        async with antiphon.start(**ours().node("alpha")) as alpha:
            proxy = await Proxy(alpha.address).start()
            async with antiphon.connect(proxy.address, tls=ours().client("shop")) as client:
                await client.publish("a-topic-with-a-name", b"a value with words")
            await proxy.close()
            assert len(proxy.recorded) > 100
            assert b"a-topic-with-a-name" not in proxy.recorded and b"a value with words" not in proxy.recorded

    running(test)


# Who is kept out.


def test_a_client_without_a_certificate_is_told_what_to_do() -> None:
    async def test() -> None:
        async with antiphon.start(**ours().node("alpha")) as alpha:
            error = await outcome(left(alpha.address, tls=ours().trust))
            assert isinstance(error, DeniedError) and "show a certificate" in str(error)
            error = await outcome(left(alpha.address))
            assert isinstance(error, PeerError) and "if it wants TLS" in str(error)
            error = await outcome(left(alpha.address, tls=theirs().client("shop")))
            assert isinstance(error, PeerError) and "certificate" in str(error)
            # One that trusts ours and is signed by theirs.
            stranger = theirs().client("shop")
            mixed = msgspec.structs.replace(stranger, authority=ours().trust.authority)
            error = await outcome(left(alpha.address, tls=mixed))
            assert isinstance(error, PeerError)
            assert not alpha._live.clients
            assert alpha._live.refused_connections >= 3

    running(test)


def test_a_client_that_wants_tls_does_not_talk_to_a_node_without() -> None:
    async def test() -> None:
        async with antiphon.start() as plain:
            error = await outcome(left(plain.address, tls=ours().client("shop")))
            assert isinstance(error, PeerError) and "speaks no TLS" in str(error)

    running(test)


def test_a_client_does_not_talk_to_a_node_that_another_authority_has_signed() -> None:
    async def test() -> None:
        async with antiphon.start(**theirs().node("alpha")) as alpha:
            error = await outcome(left(alpha.address, tls=ours().client("shop")))
            assert isinstance(error, PeerError) and "not to be trusted" in str(error)

    running(test)


def test_a_client_does_not_talk_to_a_node_at_a_host_that_is_not_the_nodes() -> None:
    async def test() -> None:
        async with antiphon.start(**ours().node("elsewhere", "10.9.9.9")) as node:
            error = await outcome(left(node.address, tls=ours().client("shop")))
            assert isinstance(error, PeerError) and "not to be trusted" in str(error)

    running(test)


def test_the_holder_of_a_clients_certificate_cannot_pass_for_a_node() -> None:
    """Neither may it listen: OpenSSL refuses its certificate as that of a server."""

    async def test() -> None:
        files = ours().client("shop")
        context = files.server_context()
        listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        error = await outcome(left(address, tls=ours().client("shop")))
        listening.close()
        assert isinstance(error, PeerError) and "not to be trusted" in str(error)

    running(test)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_a_node_of_another_authority_or_without_tls_does_not_get_in(fabric: str) -> None:
    async def test() -> None:
        async with antiphon.start(fabric=fabric, **ours().node("alpha")) as alpha:
            for settings in (theirs().node("alpha"), NO_BROKERS):
                joining = antiphon.start(fabric=fabric, join=[alpha.address], join_seconds=0.5, **settings)
                assert isinstance(await outcome(joining), JoinError)
            assert not alpha._live.cluster.peers()

    running(test)


def test_a_node_needs_the_certificate_of_a_node() -> None:
    files = ours().client("shop")
    settings: dict[str, Any] = {
        "tls_certificate": files.certificate,
        "tls_key": files.key,
        "tls_authority": files.authority,
    }
    with pytest.raises(UsageError, match="for a client"):
        running(lambda: begun(antiphon.start(**settings)))


async def left(address: str, **options: Any) -> None:
    """Connect and leave."""
    await begun(antiphon.connect(address, **options))


async def begun(starting: Any) -> None:
    """Start something and stop it."""
    async with starting:
        pass


# Lying about who one is.


async def told(node: Node, files: Tls, *frames: msgspec.Struct) -> str:
    """What a node says last to the holder of a certificate that sends these frames."""
    host, port = split_address(node.address)
    reader, writer = await asyncio.open_connection(host, port, ssl=files.client_context(), server_hostname=host)
    for frame in frames:
        encoded = msgspec.msgpack.encode(frame)
        writer.write(len(encoded).to_bytes(4, "little") + encoded)
    answer = msgspec.msgpack.decode((await reader.read())[4:])
    writer.close()
    assert answer[0] == 101, "it was refused"
    return str(answer[1])


def hello(instance: str, address: str = "127.0.0.1:1") -> Hello:
    return Hello(PROTOCOL_VERSION, "antiphon", instance, address)


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_who_lies_about_its_identity_is_cut_off(fabric: str) -> None:
    async def test() -> None:
        async with pair(fabric) as (alpha, beta):
            subscription = await beta.subscribe("room").ready()
            mallory = ours().files(NODE, "mallory")
            assert "says that it is 'beta/" in await told(alpha, mallory, hello(beta._live.instance, beta.address))
            assert "says that it is 'mallory'" in await told(alpha, mallory, hello("mallory"))
            assert "lives at 10.1.1.1" in await told(alpha, mallory, hello("mallory/1", "10.1.1.1:7400"))
            assert "no address" in await told(alpha, mallory, hello("mallory/1", "nowhere"))
            client = ours().client("shop")
            assert "certificate of a client" in await told(alpha, client, hello("shop/1"))
            assert "shows no certificate" in await told(alpha, ours().trust, hello(beta._live.instance, beta.address))
            await alpha.publish("room", b"still there")
            assert await take_values(subscription, 1) == [b"still there"]

    running(test)


def test_on_the_cube_nobody_takes_the_identifier_of_another() -> None:
    async def test() -> None:
        async with pair("cube") as (alpha, beta):
            mallory = ours().files(NODE, "mallory")
            claim = PeerAddresses([Peer("mallory/1", "127.0.0.1:9", beta.identifier)])
            reason = await told(alpha, mallory, hello("mallory/1"), claim)
            assert f"claims the identifier {beta.identifier}" in reason

    running(test)


def test_in_gossip_nobody_takes_the_identifier_of_another() -> None:
    address_book = AddressBook("alpha/1", "127.0.0.1:1", 3)
    address_book.found(0)
    address_book.learn([Peer("beta/1", "127.0.0.1:2", 5)])
    address_book.check_claim("beta/1", [Peer("beta/1", "127.0.0.1:2", 5), Peer("gamma/1", "127.0.0.1:3", 6)])
    with pytest.raises(ProtocolError, match="identifier 5"):
        address_book.check_claim("mallory/1", [Peer("mallory/1", "127.0.0.1:9", 5)])
    address_book.claim(Peer("beta/1", "127.0.0.1:2", 5))
    with pytest.raises(ProtocolError, match="identifier 7"):
        address_book.check_claim("beta/1", [Peer("beta/1", "127.0.0.1:2", 7)])


def test_on_a_tree_the_place_of_a_founder_is_for_the_one_that_is_named() -> None:
    """Several may live on one machine, so the host does not tell them apart; the table can."""

    async def test() -> None:
        brokers = free_addresses(2)
        table = {"brokers": brokers, "names": ["alpha", "beta"]}
        starting = [
            antiphon.start(fabric="tree", tree=table, listen=address, **ours().node(name))
            for address, name in zip(brokers, ("alpha", "beta"), strict=True)
        ]
        alpha, beta = await asyncio.gather(*starting)
        mallory = ours().files(NODE, "mallory")
        assert "is that of 'beta'" in await told(alpha, mallory, hello("mallory/1", beta.address))
        assert [peer.instance for peer in alpha._live.cluster.peers()] == [beta._live.instance]
        await asyncio.gather(alpha.close(), beta.close())

    running(test)


def test_an_address_leads_to_the_node_that_is_meant() -> None:
    here = CertifiedIdentity(NODE, "alpha", ("127.0.0.1",))
    check_meant(here, "")
    check_meant(here, "alpha/12")
    with pytest.raises(ProtocolError, match="'alpha' listens where 'beta' is meant"):
        check_meant(here, "beta/12")
    for nobody in (None, CertifiedIdentity(CLIENT, "alpha", ())):
        with pytest.raises(ProtocolError, match="no certificate of a node"):
            check_meant(nobody, "alpha/12")


def test_names_in_certificates() -> None:
    assert identity_in((("URI", "antiphon://node/a"), ("DNS", "A.example"))) == CertifiedIdentity(
        NODE, "a", ("a.example",)
    )
    for wrong in ("antiphon://king/a", "antiphon://node/", "antiphon://node/a/b", "antiphon://node", "http://node/a"):
        assert identity_in((("URI", wrong),)) is None or wrong.startswith("http"), wrong
    assert identity_in((("DNS", "antiphon://node/a"),)) is None
    wide = CertifiedIdentity(NODE, "a", ("*.example.org", "::1"))
    assert wide.lives_at("one.example.org") and wide.lives_at("0:0:0:0:0:0:0:1")
    assert not wide.lives_at("example.org") and not wide.lives_at("a.b.example.org") and not wide.lives_at("127.0.0.1")
    with pytest.raises(ProtocolError):
        check_node(CertifiedIdentity(NODE, "alpha", ("127.0.0.1",)), "alphabet/1", "127.0.0.1")


# Replaying what was recorded.


def test_a_recorded_handshake_is_of_no_use_to_anybody() -> None:
    async def test() -> None:
        async with antiphon.start(**ours().node("alpha")) as alpha:
            proxy = await Proxy(alpha.address).start()
            subscription = await alpha.subscribe("room").ready()
            async with antiphon.connect(proxy.address, tls=ours().client("shop")) as client:
                await client.publish("room", b"pay")
            await proxy.close()
            await until(lambda: not alpha._live.clients)
            before = alpha._live.refused_connections
            reader, writer = await asyncio.open_connection(*split_address(alpha.address))
            writer.write(proxy.recorded)
            await reader.read()
            writer.close()
            await until(lambda: alpha._live.refused_connections == before + 1)
            await alpha.publish("room", b"end")
            assert await take_values(subscription, 2) == [b"pay", b"end"]

    running(test)


# Where a node listens.


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.0.0.1:7400", "[::]:0", "example.org:7400"])
def test_other_machines_are_let_in_with_tls_alone_or_when_asked(address: str) -> None:
    for name in ("listen", "metrics"):
        with pytest.raises(UsageError, match=r"(?s)antiphon certs.*--insecure"):
            settings_from({name: address}, "a test")
        settings_from({name: address, "insecure": True}, "a test")
        settings_from({name: address, **ours().node("alpha")}, "a test")


def test_loopback_is_open() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "example.org"))


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="go together"):
        Settings(tls_certificate="a.pem").checked()
    with pytest.raises(UsageError, match="go together"):
        Tls(authority=ours().trust.authority, certificate="a.pem").client_context()
    with pytest.raises(UsageError, match="cannot read"):
        Tls(authority=str(tmp_path / "absent.pem")).client_context()
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(UsageError, match="antiphon certs"):
        Tls(authority=str(wrong)).client_context()
    shop, alpha = ours().client("shop"), ours().files(NODE, "alpha")
    with pytest.raises(UsageError, match="fit together"):
        msgspec.structs.replace(shop, key=alpha.key).client_context()


def test_metrics_for_other_machines_want_a_certificate() -> None:
    async def test() -> None:
        own = "0.0.0.0:0"
        async with antiphon.start(metrics=own, **ours().node("alpha")) as alpha:
            port = split_address(alpha.metrics_address)[1]
            request = b"GET /health HTTP/1.1\r\n\r\n"
            context = ours().client("shop").client_context()
            assert b"200 OK" in await asked(port, request, context)
            assert await asked(port, request, None) == b""
            assert await asked(port, request, ours().trust.client_context()) == b""

    running(test)


async def asked(port: int, request: bytes, context: ssl.SSLContext | None) -> bytes:
    """What a server answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(request)
    try:
        return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        writer.close()
