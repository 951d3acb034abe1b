"""Questions to the leader of a stream: how far it and its consumers are, and where a reader begins."""

from __future__ import annotations

from antiphon.kernel.errors import RemovedError, UsageError
from antiphon.streams.requests import EARLIEST, LATEST, BatchContent, ConsumerInfo, HistoryPiece, TopicInfo
from antiphon.streams.service.live_replica import LiveReplica


def described_replica(replica: LiveReplica, connected: int) -> TopicInfo:
    """A topic as its leader sees it; so many replicas are connected."""
    info, kept = replica.info, replica.kept()
    assert info is not None
    return TopicInfo(
        info.name,
        info.policy.replicas,
        info.number,
        replica.coordinator.settled_end,
        connected,
        consumers_of(replica),
        info.policy,
        kept.earliest,
        kept.size,
    )


def consumers_of(replica: LiveReplica) -> list[ConsumerInfo]:
    """The consumers of a topic, in the order of their names."""
    coordinator = replica.coordinator
    found = []
    for name, consumer in sorted(coordinator.table.by_name.items()):
        handing, settings = coordinator.handing(name), consumer.settings
        found.append(
            ConsumerInfo(
                name,
                settings.mode,
                consumer.done_below,
                coordinator.settled_end - consumer.done_below,
                0 if handing is None else len(handing.holders()),
                len(consumer.members),
                consumer.missed,
                consumer.redelivered,
                len(consumer.returns),
                settings.ack_us,
                settings.deliveries_at_most,
                settings.is_ephemeral,
            )
        )
    return found


def first_position(replica: LiveReplica, start: int, start_us: int) -> int:
    """The position at which somebody begins, or goes on; ``start_us`` is a time of day instead, if it is not 0."""
    earliest = replica.kept().earliest
    if start_us:
        return position_at(replica, start_us)
    if start == LATEST:
        return replica.coordinator.settled_end
    is_compacted = bool(replica.replica.log.last_values.by_key)
    if start == EARLIEST:
        return 0 if is_compacted else earliest
    if start < earliest and not is_compacted:
        raise RemovedError(
            f"position {start} of {replica.topic!r} was removed by retention; the earliest one is {earliest}"
        )
    return start


def last_values_from(replica: LiveReplica, position: int, most_bytes: int) -> HistoryPiece:
    """The piece of a compacted history before the part that is kept whole: the newest messages of their keys."""
    earliest = replica.kept().earliest
    values = replica.replica.log.last_values.after(position, most_bytes)
    batches = [BatchContent(each.position, each.publisher, each.sequence, each.order, each.payload) for each in values]
    next_position = values[-1].position + 1 if values else earliest
    return HistoryPiece(batches, next_position, replica.stream, True)


def position_at(replica: LiveReplica, time_us: int) -> int:
    """The first position that was given at a time of day or later, by the clocks of the leaders.

    If a later leader's clock is behind that of an earlier one, the boundary is one of several.
    """
    low, high = replica.kept().earliest, replica.coordinator.settled_end
    while low < high:
        entry = replica.entry_at((low + high) // 2)
        if entry.time_us < time_us:
            low = entry.end
        else:
            high = max(entry.position, low)
    return low


def check_generation(replica: LiveReplica, generation: int) -> None:
    """Refuse positions of another history of the topic."""
    if generation not in (0, replica.stream):
        raise UsageError(
            f"the position is of generation {generation}, an earlier history of {replica.topic!r} that was removed; "
            f"the present one has generation {replica.stream}: begin at 'earliest', 'latest' or one of its positions"
        )
