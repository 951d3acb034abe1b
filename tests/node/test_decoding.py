"""A batch is encoded where it is made, and decoded once by every process that gets it: where it is checked."""

from __future__ import annotations

from typing import Any

import pytest

import antiphon
from antiphon.api import batch_codec
from antiphon.api.columns import Columns
from tests.node.support import cluster, running, take_values


class CountingDecoder:
    """Counts the batches that it decodes."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.count = 0

    def decode(self, data: Any) -> Columns:
        self.count += 1
        columns: Columns = self._decoder.decode(data)
        return columns


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> CountingDecoder:
    counting = CountingDecoder(batch_codec.COLUMNS_DECODER)
    monkeypatch.setattr(batch_codec, "COLUMNS_DECODER", counting)
    return counting


@pytest.mark.parametrize("fabric", ["cube", "tree", "gossip"])
def test_the_node_that_reads_a_batch_decodes_it_once(decoder: CountingDecoder, fabric: str) -> None:
    async def test() -> None:
        async with antiphon.start(fabric=fabric) as one, antiphon.start(fabric=fabric, join=[one.address]) as other:
            here, there = await one.subscribe("room").ready(), await other.subscribe("room").ready()
            for number in range(10):
                one.publish("room", b"%d" % number)
                assert await take_values(there, 1) == [b"%d" % number]
                assert await take_values(here, 1) == [b"%d" % number]
            assert decoder.count == 10, "the publisher has what it published, and the receiver decodes it on arrival"

    running(test)


def test_each_process_between_two_clients_decodes_a_batch_once(decoder: CountingDecoder) -> None:
    async def test() -> None:
        async with (
            cluster(2) as (one, other),
            antiphon.connect(one.address) as publisher,
            antiphon.connect(other.address) as reader,
        ):
            subscription = await reader.subscribe("room").ready()
            for number in range(10):
                publisher.publish("room", b"%d" % number)
                assert await take_values(subscription, 1) == [b"%d" % number]
            assert decoder.count == 3 * 10, "two nodes check it, the client reads it"

    running(test)
