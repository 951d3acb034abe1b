"""Rights of clients: who they are, what they may do, what happens when the file changes; and secrets stay secret."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon
from antiphon import DeniedError, Node, UsageError
from antiphon.api.topic_names import matches
from antiphon.client.client import LiveClient
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.node.acl import (
    ClientTable,
    Holder,
    Rights,
    covers,
    new_token,
    read_rights,
    read_token,
    token_hash,
)
from antiphon.runtime.logging import JsonFormatter, LineFormatter
from antiphon.sessions.client_messages import ProducerRequest
from antiphon.transport.tls import CLIENT, NODE, CertifiedIdentity
from tests.node.secure import ours
from tests.node.support import outcome, running, take_values, until

SHOP, GUEST = new_token(), new_token()
RIGHTS = f"""
[clients.shop]
token = "{token_hash(SHOP)}"
publish = ["orders.>", "shop"]
subscribe = ["orders.>", "prices.*"]

[clients.guest]
token = "{token_hash(GUEST)}"
subscribe = ["prices.euro"]

[clients.operator]
admin = true
"""


def write(path: Path, text: str) -> None:
    """Change the file as an editor does; its time differs even where the clock is coarse."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    after = path.stat().st_mtime_ns
    if after <= before:
        os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


@asynccontextmanager
async def guarded(path: Path, text: str = RIGHTS) -> AsyncIterator[Node]:
    """A node with these rights."""
    write(path, text)
    async with antiphon.start(rights=str(path), **ours().node("alpha")) as node:
        yield node


def client_of(node: Node, token: str = "", **options: Any) -> Any:
    return antiphon.connect(node.address, tls=ours().trust, token=token, **options)


# Who is who.


def test_a_wrong_token_or_none_is_told_and_nothing_else_is(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "rights.toml") as node:
            for token, reason in (("wrong", "token is not known"), ("", "give a token")):
                error = await outcome(client_of(node, token))
                assert isinstance(error, DeniedError) and reason in str(error)
            strangers = antiphon.connect(node.address, tls=ours().client("stranger"))
            error = await outcome(strangers)
            assert isinstance(error, DeniedError) and "'stranger' is not in the rights" in str(error)
            assert not node._live.clients

    running(test)


def test_a_client_is_who_its_certificate_says_where_it_has_no_token(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            guarded(tmp_path / "rights.toml") as node,
            antiphon.connect(node.address, tls=ours().client("operator")) as client,
        ):
            assert (await client.status())["node"] == 0

    running(test)


def test_the_certificate_of_a_node_is_no_client_of_the_same_name(tmp_path: Path) -> None:
    async def test() -> None:
        text = RIGHTS.replace("[clients.operator]", "[clients.alpha]")
        async with guarded(tmp_path / "rights.toml", text) as node:
            error = await outcome(antiphon.connect(node.address, tls=ours().files(NODE, "alpha")))
            assert isinstance(error, DeniedError) and "is for the node 'alpha'" in str(error)

    running(test)


# What they may do.


def test_members_of_a_topic_are_named_only_to_clients_that_may_publish_on_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "rights.toml") as node, client_of(node, SHOP) as shop:
            for topic in ("shop", "secret"):
                await node.subscribe(topic).ready()
            answer = await shop._live.request(
                lambda number: ProducerRequest(number, "writer", None, ["shop", "secret"])
            )
            assert [one.member_of for one in answer.nodes] == [["shop"]]

    running(test)


def test_who_may_not_is_told_and_goes_on_with_what_it_may(tmp_path: Path) -> None:
    async def test() -> None:
        async with guarded(tmp_path / "rights.toml") as node, client_of(node, SHOP) as shop:
            subscription = await shop.subscribe("orders.>").ready()
            for topic in ("prices.euro", "shops", "order"):
                error = await outcome(shop.publish(topic, b"x"))
                assert isinstance(error, DeniedError) and f"'shop' may not publish on '{topic}'" in str(error)
                assert topic not in node._live.topics, "what is denied leaves nothing behind"
            for pattern in ("prices.>", ">", "*", "shop", "prices.euro.old"):
                error = await outcome(shop.subscribe(pattern).ready())
                assert isinstance(error, DeniedError) and "may not subscribe" in str(error)
            error = await outcome(shop.status())
            assert isinstance(error, DeniedError) and "admin = true" in str(error)
            await shop.publish("orders.europe", b"one")
            assert await take_values(subscription, 1) == [b"one"]
            async with client_of(node, GUEST) as guest:
                assert isinstance(await outcome(guest.publish("prices.euro", b"x")), DeniedError)
                await guest.subscribe("prices.euro").ready()

    running(test)


def test_without_a_file_whoever_has_a_certificate_may_do_everything() -> None:
    async def test() -> None:
        async with (
            antiphon.start(**ours().node("alpha")) as node,
            antiphon.connect(node.address, tls=ours().client("shop")) as client,
        ):
            await client.publish("anything", b"x")
            assert (await client.status())["clients"] == 1

    running(test)


WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)
PATTERNS = st.builds(
    lambda words, end: ".".join([*words, *end]), st.lists(st.sampled_from(["a", "b", "*"]), max_size=3), st.just([])
).filter(bool) | st.lists(st.sampled_from(["a", "b", "*"]), max_size=3).map(lambda words: ".".join([*words, ">"]))


@given(PATTERNS, PATTERNS, WORDS)
def test_who_may_subscribe_to_a_pattern_may_see_whatever_it_matches(
    allowed: str, wanted: str, words: list[str]
) -> None:
    name = ".".join(words)
    if covers(allowed, wanted) and matches(wanted, name):
        assert matches(allowed, name)


@pytest.mark.parametrize(
    ("allowed", "wanted", "is_covered"),
    [
        (">", ">", True),
        (">", "a.*.>", True),
        ("a.>", "a.b", True),
        ("a.>", "a", False),
        ("a.>", ">", False),
        ("a.*", "a.*", True),
        ("a.*", "a.>", False),
        ("a.b", "a.*", False),
        ("*.b", "a.b", True),
        ("a", "a.b", False),
        ("a.b", "a", False),
    ],
)
def test_which_patterns_cover_which(allowed: str, wanted: str, is_covered: bool) -> None:
    assert covers(allowed, wanted) is is_covered


def test_consuming_managing_and_reading_a_topic_are_rights_of_their_own(tmp_path: Path) -> None:
    async def test() -> None:
        boss = new_token()
        more = f'[clients.boss]\ntoken = "{token_hash(boss)}"\nmanage = ["orders.*"]\n'
        path = tmp_path / "rights.toml"
        write(path, RIGHTS + more)
        node_of = ours().node("alpha") | {"data": str(tmp_path / "data"), "rights": str(path)}
        async with antiphon.start(**node_of) as node, client_of(node, SHOP) as shop, client_of(node, boss) as manager:
            assert "may not manage the topic 'orders.a'" in str(await outcome(shop.topics.create("orders.a")))
            assert isinstance(await outcome(manager.topics.create("prices.euro")), DeniedError)
            await manager.topics.create("orders.a", replicas=1)
            assert [topic.name for topic in await manager.topics.list()] == ["orders.a"]
            assert (await shop.publish("orders.a", b"one", acks="quorum")).position == 0
            assert "may not consume 'orders.a'" in str(await outcome(shop.consume("orders.a", "work").ready()))
            write(path, (RIGHTS + more).replace("subscribe =", 'consume = ["orders.a"]\nsubscribe ='))
            node._live.read_rights_again()
            work = await shop.consume("orders.a", "work").ready()
            assert [message.value for message in await work.fetch(1)] == [b"one"]
            assert isinstance(await outcome(shop.topics.remove_consumer("orders.a", "work")), DeniedError)
            # Taken away again: the member hears it, and the message is free.
            write(path, RIGHTS + more)
            node._live.read_rights_again()
            assert "may not consume" in str(await outcome(work.fetch(1, timeout=20)))
            while any(
                each.members or each.handed_out for each in (await manager.topics.describe("orders.a")).consumers
            ):
                await asyncio.sleep(0.01)
            await manager.topics.remove_consumer("orders.a", "work")

    running(test)


def test_who_serves_may_answer_and_nothing_else() -> None:
    serving, calling = ClientTable(serve=["prices.get"]), ClientTable(publish=["prices.*"], subscribe=["prices.*"])
    assert serving.may_publish("prices.get") and serving.may_publish("$serving.prices.get")
    assert serving.may_subscribe("$callers.prices.get") and serving.may_subscribe("prices.get")
    assert not serving.may_publish("$callers.prices.get") and not serving.may_subscribe("prices.>")
    assert calling.may_publish("$callers.prices.get") and calling.may_subscribe("$serving.prices.get")
    assert not calling.may_publish("$serving.prices.get") and not calling.may_subscribe("$callers.prices.get")
    everything = ClientTable(publish=[">"], subscribe=[">"])
    assert not everything.may_publish("$serving.prices.get"), "who serves is told apart from who publishes"


# When the file changes.


def test_changed_rights_hold_without_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "rights.toml"
        async with guarded(path) as node, client_of(node, SHOP) as shop:
            await shop.publish("shop", b"before")
            subscription = await shop.subscribe("prices.*").ready()
            changed = RIGHTS.replace('publish = ["orders.>", "shop"]', 'publish = ["new"]')
            write(path, changed.replace('"orders.>", "prices.*"]', '"orders.>"]'))
            error = await outcome(anext(aiter(subscription)))
            assert isinstance(error, DeniedError) and "may not subscribe" in str(error)
            assert isinstance(await outcome(shop.publish("shop", b"after")), DeniedError)
            await shop.publish("new", b"after")

    running(test)


def test_who_is_taken_out_of_the_file_is_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "rights.toml"
        async with guarded(path) as node, client_of(node, SHOP) as shop, client_of(node, GUEST) as guest:
            subscription = await shop.subscribe("orders.>").ready()
            write(path, RIGHTS.replace(token_hash(SHOP), token_hash(new_token())))
            error = await outcome(anext(aiter(subscription)))
            assert isinstance(error, DeniedError) and "not let in any more" in str(error)
            await until(lambda: len(node._live.clients) == 1)
            await guest.subscribe("prices.euro").ready()

    running(test)


def test_a_file_that_cannot_be_used_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "rights.toml"
        async with guarded(path) as node, client_of(node, SHOP) as shop:
            for wrong in (
                "[clients",
                "clients = 1",
                "[clients.shop]\npublish = ['a..b']",
                "[clients.shop]\nking = true",
            ):
                write(path, wrong)
                node._live.read_rights_again()
                assert "the old rights stay" in node._live.rights.trouble
                assert any("rights:" in trouble for trouble in antiphon_status(node)["troubles"])
                await shop.publish("shop", b"still")
            path.unlink()
            node._live.read_rights_again()
            assert "cannot read" in node._live.rights.trouble
            await shop.publish("shop", b"still")
            write(path, RIGHTS)
            node._live.read_rights_again()
            assert not node._live.rights.trouble

    running(test)


def antiphon_status(node: Node) -> dict[str, Any]:

    return node._live.status.figures()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[clients.a]\ntoken = "a secret in clear"', "is no hash"),
        ('[clients.a]\ntoken = "sha256:12"', "is no hash"),
        (f'[clients.a]\ntoken = "{token_hash("x")}"\n[clients.b]\ntoken = "{token_hash("x")}"', "token of another"),
        ("[clients.a]\nsubscribe = ['>.a']", "put it last"),
        ("[client.a]", "clients.NAME"),
        ('[clients.""]', "is not a valid name of a client"),
        ('[clients."shop/1"]', "is not a valid name of a client"),
        ("[clients.a]\ntoken = 7", "clients.NAME"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_its_secrets(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason) as found:
        read_rights(path)
    assert "a secret in clear" not in str(found.value) and token_hash("x") not in str(found.value)


def test_rights_need_tls() -> None:
    """Without it anybody could say to be a node, and nodes may do everything."""
    with pytest.raises(UsageError, match="nothing without TLS"):
        antiphon.start(rights="rights.toml")


# Tokens.


def test_a_token_is_not_sent_over_a_network_without_tls() -> None:
    async def test() -> None:
        client = LiveClient("10.0.0.1:7400", token="secret")
        with pytest.raises(UsageError, match="without TLS"):
            client._check_node(None, "10.0.0.1")  # type: ignore[arg-type]
        client._check_node(None, "127.0.0.1")  # type: ignore[arg-type]

    running(test)


def test_tokens_are_long_random_and_kept_as_hashes(tmp_path: Path) -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert all(len(new_token()) >= 43 for _ in range(10))
    path = tmp_path / "rights.toml"
    path.write_text(RIGHTS)
    rights = Rights(str(path))
    assert rights.holder(None, SHOP, True).name == "shop"
    assert rights.holder(None, GUEST, True).name == "guest"
    for wrong in (SHOP[:-1], SHOP + "x", token_hash(SHOP), SHOP.lower()):
        with pytest.raises(DeniedError):
            rights.holder(None, wrong, True)
    # The token decides, whatever certificate is shown with it.
    assert rights.holder(CertifiedIdentity(CLIENT, "operator", ()), GUEST, True).name == "guest"
    (tmp_path / "token").write_text(f"{SHOP}\n")
    assert read_token(tmp_path / "token") == SHOP
    for wrong in ("", "two words"):
        (tmp_path / "token").write_text(wrong)
        with pytest.raises(UsageError, match="holds no token"):
            read_token(tmp_path / "token")


def attributes_of(thing: object) -> dict[str, Any]:
    """All attributes of an object, whose class may be compiled."""
    return {name: getattr(thing, name) for name in dir(thing) if not name.startswith("__")}


def test_secrets_are_in_no_log_error_or_repr(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "a-token-that-nobody-may-see"
    said: list[str] = []

    async def test() -> None:
        path = tmp_path / "rights.toml"
        async with guarded(path) as node:
            said.append(str(await outcome(client_of(node, secret))))
            write(path, RIGHTS + f'\n[clients.new]\ntoken = "{token_hash(secret)}"\n')
            node._live.read_rights_again()
            async with client_of(node, secret) as client:
                said.append(str(await outcome(client.publish("x", b""))))
                said.append(str(await outcome(client.status())))
                said.append(
                    repr(client) + repr(attributes_of(next(iter(node._live.clients)))) + repr(node._live.settings)
                )
                said.append(repr(antiphon_status(node)))
            said.append(str(await outcome(client_of(node, secret + "x"))))

    with caplog.at_level(logging.DEBUG, "antiphon"):
        running(test)
    from antiphon.cli.running import ServerAccess

    said.append(repr(ServerAccess("a", "b", token=secret)))
    said.append(repr(Hello(PROTOCOL_VERSION, "antiphon", "x", "", "", secret)))
    said += [each.format(record) for record in caplog.records for each in (LineFormatter(), JsonFormatter())]
    assert len(said) > 8
    for text in said:
        assert secret not in text
    assert msgspec.msgpack.encode(Hello(1, "", "", "", "", secret)).count(secret.encode()) == 1, "it is sent, though"


def test_a_holder_is_known_again_or_not(tmp_path: Path) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(RIGHTS)
    rights = Rights(str(path))
    holder = rights.holder(None, SHOP, True)
    assert rights.renewed(holder) == holder
    assert rights.renewed(Holder("shop", token_hash("old"), ClientTable())) is None
    assert rights.renewed(Holder("nobody", "", ClientTable())) is None
