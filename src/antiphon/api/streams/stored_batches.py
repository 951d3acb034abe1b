"""Batches as the streams of a node read them: :class:`antiphon.streams.service.host.ServiceHost` for every host."""

from __future__ import annotations

from typing import cast

from antiphon.api.batch import Batch
from antiphon.api.heard import THIS_TOPIC
from antiphon.streams.links import MessageLinks
from antiphon.streams.service.host import StreamBatch, StreamContent


class StoredBatches:
    """The part of the host of streams that knows how batches are written (:mod:`antiphon.api.batch`)."""

    def batch(self, topic: str, content: StreamContent) -> Batch:
        return Batch(topic, content.publisher, content.order, 0, content.payload, sequence=content.sequence)

    def key_of(self, batch: StreamBatch, index: int) -> bytes:
        keys = cast(Batch, batch).columns.keys
        return (None if keys is None else keys[index]) or b""

    def value_of(self, batch: StreamBatch, index: int) -> bytes:
        return cast(Batch, batch).columns.values[index]

    def first_number(self, batch: StreamBatch) -> int:
        columns = cast(Batch, batch).columns
        return columns.first_sequence if columns.author_sequence is None else columns.author_sequence

    def links_of(self, batch: StreamBatch, index: int) -> MessageLinks:
        columns = cast(Batch, batch).columns
        first = self.first_number(batch)
        follows = None if columns.follows is None else columns.follows[index]
        if follows is None:
            return MessageLinks(batch.author, first + index)
        pairs = follows.topics.get(THIS_TOPIC, [])
        named = tuple(zip(pairs[::2], pairs[1::2], strict=False))
        return MessageLinks(batch.author, first + index, named, follows.is_narrowed)
