"""Quotas of identities: what is used up is refused by name, or slows, and others do not notice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from antiphon import Client, PeerError, QuotaError, UsageError, testing
from antiphon.node.acl import new_token, read_rights, token_hash
from antiphon.node.gateway.accounts import CLIENTS_SHOWN, Account, Ledger, Rate
from antiphon.node.quotas import Quotas
from antiphon.node.status import metrics_text
from antiphon.sessions.client_messages import AHEAD_BYTES
from tests.node.support import exact_values

SHOP, BANK = new_token(), new_token()
WORK = bytes(1 << 20)
CLIENTS = f"""
[clients.shop]
token = "{token_hash(SHOP)}"
publish = [">"]
subscribe = [">"]
admin = true
{{shop}}

[clients.bank]
token = "{token_hash(BANK)}"
publish = [">"]
subscribe = [">"]
"""


def rights(place: Path, shop: str = "", everybody: str = "") -> str:
    """A file in which ``shop`` has quotas."""
    quotas = f"[clients.shop.quotas]\n{shop}" if shop else ""
    path = place / "rights.toml"
    path.write_text(CLIENTS.format(shop=quotas) + (f"\n[quotas]\n{everybody}" if everybody else ""))
    return str(path)


def with_quotas(place: Path, scenario: Any, shop: str = "", everybody: str = "", **settings: Any) -> None:
    testing.run(scenario, 1, rights=rights(place, shop, everybody), insecure=True, **settings)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_connections_of_one_identity_are_counted_and_those_of_others_are_not(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        first = await cluster.connect(token=SHOP)
        await cluster.connect(token=SHOP)
        with pytest.raises(PeerError, match=r"uses 2 connections .*quota connections"):
            await cluster.connect(token=SHOP)
        await cluster.connect(token=BANK)
        await first.close()
        await asyncio.sleep(1)
        await cluster.connect(token=SHOP)

    with_quotas(tmp_path, scenario, "connections = 2")


def test_subscriptions_are_counted_over_all_connections(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        one, other = await cluster.connect(token=SHOP), await cluster.connect(token=SHOP)
        first = await one.subscribe("a").ready()
        await other.subscribe("b").ready()
        with pytest.raises(QuotaError, match="quota subscriptions"):
            await one.subscribe("c").ready()
        await first.close()
        await asyncio.sleep(1)
        await one.subscribe("c").ready()

    with_quotas(tmp_path, scenario, "subscriptions = 2")


def test_topics_are_counted_also_over_connections_that_have_ended(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        for topic in (b"a", b"b"):
            client = await cluster.connect(token=SHOP)
            await client.publish(topic.decode(), b"one")
            await client.close()
        client = await cluster.connect(token=SHOP)
        await client.publish("a", b"known")
        with pytest.raises(QuotaError, match="quota topics"):
            await client.publish("c", b"new")
        with pytest.raises(QuotaError, match="quota topics"):
            await client.subscribe("c").ready()
        bank = await cluster.connect(token=BANK)
        await bank.publish("c", b"not a tenant's business")

    with_quotas(tmp_path, scenario, "topics = 2")


async def publish_on(client: Client, topics: int) -> None:
    for number in range(topics):
        await client.publish(f"shop.{number}", b"junk")


def test_an_identity_that_begins_topics_without_end_leaves_some_for_others(tmp_path: Path) -> None:
    """No quota is set. Connecting again gains nothing, and topics that are known can be used by everybody."""

    async def scenario(cluster: testing.Cluster) -> None:
        bank = await cluster.connect(token=BANK)
        await bank.publish("bank", b"one")
        for _ in range(3):
            shop = await cluster.connect(token=SHOP)
            with pytest.raises(QuotaError, match=r"the rest is for others \(quota topics\)"):
                await publish_on(shop, 64)
            await shop.publish("bank", b"known")
            await shop.close()
        for number in range(3):
            await bank.publish(f"bank.{number}", b"new")
        with pytest.raises(QuotaError, match="the rest is for others"):
            await bank.publish("bank.4", b"more than its share of the rest")

    with_quotas(tmp_path, scenario, maximum_topics=64)


def test_policies_that_an_operator_does_not_allow_are_refused(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        client = await cluster.connect(token=SHOP)
        with pytest.raises(QuotaError, match=r"'block' \(quota policies\); choose 'drop_oldest' or 'disconnect'"):
            await client.subscribe("room").ready()
        await client.subscribe("room", policy="drop_oldest").ready()

    with_quotas(tmp_path, scenario, 'policies = ["drop_oldest", "disconnect"]')


def test_the_policy_of_the_operator_wins_over_what_a_client_asks_for(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        shop, bank = await cluster.connect(token=SHOP), await cluster.connect(token=BANK)
        lazy = await shop.subscribe("room", policy="block", limit=1).ready()
        async with asyncio.timeout(20.0):
            # With the policy that it asks for these would wait for it without end.
            for _ in range(4 * AHEAD_BYTES // len(WORK)):
                await bank.publish("room", WORK)
        (subscription,) = cluster.nodes[0]._live.subscriptions._ready
        assert (subscription.policy, subscription.owner) == ("drop_oldest", "client shop")
        await lazy.close()

    with_quotas(tmp_path, scenario, 'policy = "drop_oldest"', lost_seconds=60)


@pytest.mark.parametrize("quota", ["messages_per_second = 100", "bytes_per_second = 3000"])
def test_a_rate_slows_its_identity_loses_nothing_and_leaves_others_alone(tmp_path: Path, quota: str) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        shop, bank = await cluster.connect(token=SHOP), await cluster.connect(token=BANK)
        again = await cluster.connect(token=SHOP)
        room = await bank.subscribe("room").ready()
        begun = now()
        sent = [b"%d" % number for number in range(600)]
        for number, value in enumerate(sent):
            # Two connections share what their identity has.
            await (shop if number % 2 else again).publish("room", value, order="causal")
        assert sorted(await exact_values(room, 600)) == sorted(sent)
        # The rate of one second is free, and the last batch may make debts.
        assert 4.0 < now() - begun < 8.0
        begun = now()
        for _ in range(200):
            await bank.publish("hall", b"quick")
        assert now() - begun < 0.5

    with_quotas(tmp_path, scenario, quota)


def test_a_client_that_never_reads_holds_others_up_no_longer_than_it_may(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        shop, bank = await cluster.connect(token=SHOP), await cluster.connect(token=BANK)
        lazy = await shop.subscribe("room", limit=1).ready()
        begun = now()
        # More than is under way to a client that does not take it.
        for _ in range(4 * AHEAD_BYTES // len(WORK)):
            await bank.publish("room", WORK)
        assert 2 <= now() - begun < 10
        with pytest.raises(QuotaError, match="quota block_seconds"):
            await exact_values(lazy, 100_000)

    with_quotas(tmp_path, scenario, "block_seconds = 2", lost_seconds=60)


def test_quotas_change_with_the_file_and_what_is_used_stays_used(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        client = await cluster.connect(token=SHOP)
        await client.publish("a", b"one")
        rights(tmp_path, shop="topics = 2")
        cluster.nodes[0]._live.read_rights_again()
        await client.publish("b", b"two")
        with pytest.raises(QuotaError, match="uses 2 topics"):
            await client.publish("c", b"three")
        assert (await client.status())["quotas"]["shop"]["hits"] == {"topics": 1}

    with_quotas(tmp_path, scenario, "topics = 1")


def test_metrics_say_which_client_is_at_which_quota(tmp_path: Path) -> None:
    async def scenario(cluster: testing.Cluster) -> None:
        client = await cluster.connect(token=SHOP)
        await client.publish("a", b"one")
        with pytest.raises(QuotaError):
            await client.publish("b", b"two")
        figures = await client.status()
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(metrics_text(figures).decode())
            for sample in family.samples
            if sample.name.startswith("antiphon_client_")
        }
        assert samples == {
            ("antiphon_client_quota_used", "shop", "topics"): 1.0,
            ("antiphon_client_quota_bound", "shop", "topics"): 1.0,
            ("antiphon_client_quota_hits_total", "shop", "topics"): 1.0,
        }

    with_quotas(tmp_path, scenario, "topics = 1")


def test_figures_are_of_the_clients_that_were_at_a_quota_most_often() -> None:
    ledger = Ledger(lambda: 0.0)
    for number in range(3 * CLIENTS_SHOWN):
        account = ledger.account(f"client-{number}", Quotas(topics=1))
        account.hits["topics"] += number
    shown = ledger.figures()
    assert set(shown) == {f"client-{number}" for number in range(2 * CLIENTS_SHOWN, 3 * CLIENTS_SHOWN)}
    assert shown["client-250"]["bounds"] == {"topics": 1}


def test_an_identity_has_its_own_quotas_and_the_defaults_for_the_rest(tmp_path: Path) -> None:
    found = read_rights(Path(rights(tmp_path, shop="connections = 3", everybody="connections = 1\ntopics = 7")))
    assert found["shop"].quotas == Quotas(connections=3, topics=7)
    assert found["bank"].quotas == Quotas(connections=1, topics=7)


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        ("topics = 0", "more than 0"),
        ("bytes_per_second = -1.5", "more than 0"),
        ('policies = ["blok"]', "no policy 'blok'"),
        ('policy = "blok"', "no policy 'blok'"),
        ("conections = 1", "conections"),
        ('topics = "many"', "topics"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused_with_its_place(tmp_path: Path, quota: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_rights(Path(rights(tmp_path, shop=quota)))


def test_a_bucket_fills_with_time_and_never_beyond_its_burst() -> None:
    rate = Rate(10.0, now=0.0)
    rate.charge(10, 0.0)
    assert rate.debt_seconds(0.0) == 0.0
    rate.charge(5, 0.0)
    assert rate.debt_seconds(0.0) == pytest.approx(0.5)
    assert rate.debt_seconds(0.25) == pytest.approx(0.25)
    rate.charge(0, 1000.0)
    rate.charge(20, 1000.0)
    assert rate.debt_seconds(1000.0) == pytest.approx(1.0)


def test_without_quotas_nothing_is_counted() -> None:
    account = Account("", Quotas(), lambda: 0.0)
    assert not account.has_rates
    for number in range(1000):
        account.connect()
        account.subscribe("block")
        account.use_topic(str(number))
    assert account.topics == set()
