"""Quotas of what the cluster keeps for a client: named consumers, histories and their bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon import Node, QuotaError
from antiphon.node.acl import new_token, token_hash
from tests.node.support import cluster, running

SHOP, BANK = new_token(), new_token()
RIGHTS = f"""
[clients.shop]
token = "{token_hash(SHOP)}"
publish = ["shop.>"]
consume = ["shop.>", "bank.>"]
manage = ["shop.>"]

[clients.shop.quotas]
consumers = 2
histories = 2
history_bytes = 10000000

[clients.bank]
token = "{token_hash(BANK)}"
publish = ["bank.>"]
subscribe = ["bank.>"]
consume = ["bank.>"]
manage = ["bank.>"]
"""


@asynccontextmanager
async def one_node(place: Path) -> AsyncIterator[Node]:
    """A node with a data directory, and two tenants."""
    rights = place / "rights.toml"
    rights.write_text(RIGHTS)
    async with cluster(1, data=str(place / "data"), rights=str(rights), insecure=True) as (node,):
        yield node


def test_consumers_of_an_identity_have_a_quota_that_outlives_its_connections(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_node(tmp_path) as node, antiphon.connect(node.address, token=BANK) as bank:
            await bank.topics.create("bank.room", replicas=1)
            for name in ("one", "two"):
                async with antiphon.connect(node.address, token=SHOP) as shop:
                    await shop.consume("bank.room", name).ready()
            async with antiphon.connect(node.address, token=SHOP) as shop:
                with pytest.raises(QuotaError, match="quota consumers"):
                    await shop.consume("bank.room", "three").ready()
                # A consumer that there is costs nothing more, and others have their own quotas.
                await shop.consume("bank.room", "two").ready()
                await bank.consume("bank.room", "three").ready()
                await bank.topics.remove_consumer("bank.room", "one")
                await shop.consume("bank.room", "four").ready()
            figures = node._live.ledger.figures()["shop"]
            assert (figures["consumers"], figures["bounds"]["consumers"]) == (1, 2)
            assert figures["hits"] == {"consumers": 1}

    running(test)


def test_histories_of_an_identity_have_quotas_of_number_and_bytes(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_node(tmp_path) as node, antiphon.connect(node.address, token=SHOP) as shop:
            with pytest.raises(QuotaError, match=r"asks for no bound \(quota history_bytes\)"):
                await shop.topics.create("shop.one", replicas=1)
            await shop.topics.create("shop.one", replicas=1, retention_bytes=2_000_000, hold=1)
            with pytest.raises(QuotaError, match="uses 2000000 of 10000000 history_bytes"):
                await shop.topics.create("shop.two", replicas=1, retention_bytes=5_000_000, hold=2)
            await shop.topics.create("shop.two", replicas=1, retention_bytes=4_000_000, hold=2)
            with pytest.raises(QuotaError, match="quota history_bytes"):
                await shop.topics.set("shop.one", retention_bytes=2_000_001)
            with pytest.raises(QuotaError, match="quota histories"):
                await shop.topics.create("shop.three", replicas=1, retention_bytes=1, hold=1)
            await shop.topics.remove("shop.two")
            await shop.topics.create("shop.three", replicas=1, retention_bytes=1, hold=1)

    running(test)
