"""Bugs in streams, one at a time, that random schedules must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.streams import (
    consumers,
    fetching,
    handing,
    numbering,
    readiness,
    replica_log,
    retention,
)
from antiphon.streams.entries import IndexEntry
from antiphon.streams.leaders import leading
from tests.streams.stream_world import SimulatedReplica

Plant = Callable[[pytest.MonkeyPatch], None]


def without_messages(patch: pytest.MonkeyPatch) -> None:
    held = property(lambda self: min(self.on_disk, self.matched))
    patch.setattr(replica_log.ReplicaLog, "held", held)


def before_the_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica_log.ReplicaLog, "held", property(lambda self: min(self.complete, self.matched)))


def half_is_enough(patch: pytest.MonkeyPatch) -> None:
    def count(self: Any) -> None:
        log = self._log
        held = [log.held if each == self._me else self._progress[each].held for each in log.replicas.voters]
        number = sorted(held, reverse=True)[max(0, log.replicas.majority - 2)]
        if number > log.settled and log.index.term_at(number) == log.term:
            log.settle_to(number)

    patch.setattr(leading.Leading, "count", count)


def placed_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(numbering.Numbering, "is_settled", lambda _, _name: False)


def votes_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedReplica, "write_vote", lambda _, _term, _voted_for: None)


def any_key(patch: pytest.MonkeyPatch) -> None:
    kinds = {"any": readiness.Readiness, "key": readiness.Readiness, "causal": readiness.CausalReadiness}
    patch.setattr(handing, "readiness_for", lambda consumer, *rest: kinds[consumer.settings.mode](consumer, *rest))


def nothing_is_awaited(patch: pytest.MonkeyPatch) -> None:
    kinds = {"any": readiness.Readiness, "key": readiness.KeyReadiness, "causal": readiness.Readiness}
    patch.setattr(handing, "readiness_for", lambda consumer, *rest: kinds[consumer.settings.mode](consumer, *rest))


def nobody_is_heard(patch: pytest.MonkeyPatch) -> None:
    original = handing.Handing.__init__
    patch.setattr(handing.Handing, "__init__", lambda self, consumer, host, _: original(self, consumer, host, True))


def leases_end_silently(patch: pytest.MonkeyPatch) -> None:
    """A message comes back and is handed out before the replicas know it."""

    def come_back(self: Any, position: int) -> None:
        lease = self._leases[position]
        self._release(lease)
        if not lease.is_paused:
            self._readiness.paused(position)
        self._host.settle_return(position)
        del self._leases[position]
        self._readiness.came_back(position, lease.former)

    patch.setattr(handing.Handing, "_come_back", come_back)


def answered_too_early(patch: pytest.MonkeyPatch) -> None:
    original = handing.Handing.acknowledge

    def acknowledge(self: Any, member: int, positions: list[int], done: Callable[[bool], None]) -> None:
        original(self, member, positions, lambda _: None)
        done(True)

    patch.setattr(handing.Handing, "acknowledge", acknowledge)


def changed_positions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IndexEntry, "end", property(lambda self: self.position + 1), raising=False)


def consumers_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedReplica, "not_done", lambda _: [])


def removed_too_early(patch: pytest.MonkeyPatch) -> None:
    original = retention.Bounds.is_beyond
    patch.setattr(retention.Bounds, "is_beyond", lambda self, size, age: original(self, 2 * size, 2 * age))


def space_is_not_freed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedReplica, "remove_entries", lambda self, _: self._write("remove", 0))


def removed_before_the_snapshot_says_so(patch: pytest.MonkeyPatch) -> None:
    def free(self: Any) -> None:
        last = min(self.kept.first - 1, self.index.base)
        if self.kept.first > self.index.base:
            self.compact()
        if last > self.index.floor:
            self.index.floor = last
            self.host.remove_entries(last)

    patch.setattr(replica_log.ReplicaLog, "free", free)


def history_is_not_filled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching.Backfilling, "advance", lambda _: None)


def missed_silently(patch: pytest.MonkeyPatch) -> None:
    def pass_over(self: Any, earliest: int) -> None:
        if earliest > self.done_below:
            self.finish(self.done_below, earliest - 1)

    patch.setattr(consumers.Consumer, "pass_over", pass_over)


def learners_count_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading.Leading, "is_near", lambda *_: True)
    patch.setattr(leading.Leading, "has_all", lambda *_: True)
    patch.setattr(replica_log.ReplicaLog, "is_set_settled", property(lambda _: True))


def the_oldest_value_stays(patch: pytest.MonkeyPatch) -> None:
    original = retention.LastValues.apply

    def apply(self: Any, removed: Any) -> None:
        original(self, [value for value in removed if value.key not in self.by_key])

    patch.setattr(retention.LastValues, "apply", apply)


def values_are_no_part_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention.LastValues, "snapshot", lambda _: b"")


def removed_keys_stay(patch: pytest.MonkeyPatch) -> None:
    original = retention.LastValues.apply
    patch.setattr(
        retention.LastValues,
        "apply",
        lambda self, removed: original(self, [each for each in removed if each.payload]),
    )


MUTANTS: dict[str, Plant] = {
    "a replica acknowledges entries without their messages": without_messages,
    "a replica acknowledges entries before they are on disk": before_the_disk,
    "half of the replicas is a majority": half_is_enough,
    "a publication that is settled gets another place": placed_twice,
    "votes are not written": votes_are_forgotten,
    "keys do not matter": any_key,
    "what a message follows does not matter": nothing_is_awaited,
    "a new leader does not ask what members hold": nobody_is_heard,
    "a message is handed out again before the replicas know": leases_end_silently,
    "an acknowledgement is answered before it is settled": answered_too_early,
    "a publication takes one position": changed_positions,
    "retention does not look at consumers": consumers_do_not_count,
    "retention removes half of what it should keep": removed_too_early,
    "removed messages stay on the disk": space_is_not_freed,
    "messages go before the snapshot says so": removed_before_the_snapshot_says_so,
    "a replica that began with a snapshot does not fill its history": history_is_not_filled,
    "a consumer is not told what it missed": missed_silently,
    "the oldest value of a key stays": the_oldest_value_stays,
    "the newest values are no part of snapshots": values_are_no_part_of_snapshots,
    "a message without a value does not remove its key": removed_keys_stay,
    "replicas change before the change before is settled": learners_count_at_once,
}
