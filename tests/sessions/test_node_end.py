"""The node's end as a state machine: what it vouches for when a client comes from another node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.sessions.dedup import DedupTable, Ranges
from antiphon.sessions.host import FabricTraits
from antiphon.sessions.lost_peers import LostPeers
from antiphon.sessions.node_end import NodeEnd
from antiphon.sessions.replay_buffer import Budget, ReplayBuffer, Resumption
from antiphon.sessions.steps import start


class LonelyHost:
    """A node that reaches no other."""

    def now_us(self) -> int:
        return 1000

    def after(self, delay_us: int, call: object) -> None:
        """Nothing is waited for."""

    def identifiers(self) -> set[int]:
        return set()

    def frontier_keys(self, topic: int) -> list[int]:
        return []


@pytest.mark.parametrize(
    ("past", "is_gap"), [({}, True), ({1: [1]}, True), ({1: [2]}, False), ({1: [5], 2: [1]}, False)]
)
def test_a_gap_is_told_if_only_nodes_out_of_reach_can_have_shown_what_counts_as_past(
    past: dict[int, Ranges], is_gap: bool
) -> None:
    """Two publications of node 1 were past when this node became a member, later than the client subscribed."""
    replay_buffer: ReplayBuffer[Any] = ReplayBuffer(Budget())
    replay_buffer.begin(500)
    replay_buffer.starts_behind(DedupTable({1: [2]}))
    topic: Any = SimpleNamespace(name="room", number=7, replay_buffer=replay_buffer)
    host: Any = LonelyHost()
    end: NodeEnd[Any] = NodeEnd(FabricTraits(False, True, False), host)
    resumption: Resumption[Any] = Resumption(9, 100, {"room": {}}, {"room": past})
    assert start(end.fetch(topic, resumption)).is_done
    assert resumption.replay("room", replay_buffer) == (is_gap, [])


def test_a_node_remembers_since_when_others_are_lost_for_as_long_as_it_matters() -> None:
    lost = LostPeers(began_us=100, memory_us=1000)
    assert lost.since_us([1, 2]) == 100
    lost.add(1, 200)
    lost.add(2, 300)
    assert (lost.since_us([1]), lost.since_us([1, 2]), lost.since_us([3])) == (200, 300, 100)
    lost.add(1, 1400)
    assert lost.since_us([2]) == 100 and lost.since_us([1, 2]) == 1400
