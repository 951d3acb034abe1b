"""The interface of every order, and what a user's own order gets from it."""

from __future__ import annotations

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from antiphon.kernel import CAUSAL
from antiphon.kernel.message import Publication
from antiphon.orders import Order, Ordered
from antiphon.simulator.engine.actions import PublishAction
from tests.support import Broadcast, text


def test_an_order_must_say_what_its_rule_is() -> None:
    order = Order()
    publication = Ordered(0, 1, 0, b"", vec[i64]())
    with pytest.raises(NotImplementedError):
        order.stamp(1)
    with pytest.raises(NotImplementedError):
        order.arrived(publication)
    with pytest.raises(NotImplementedError):
        order.waiting()


class InPairs(Order):
    """A user's order: publications leave two by two. Interpreted also where its base is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Publication] = []

    def stamp(self, sequence: int, order: int = CAUSAL) -> vec[i64]:
        return vec[i64]()

    def arrived(self, publication: Publication) -> list[Publication]:
        self.kept.append(publication)
        if len(self.kept) < 2:
            self.count_held()
            return []
        released, self.kept = self.kept, []
        return released

    def waiting(self) -> int:
        return len(self.kept)


def test_an_order_of_ones_own_stands_above_a_fabric() -> None:
    run = Broadcast(2, order=lambda _: InPairs())
    for time in (0, 10, 20):
        run.engine.at(time, PublishAction(0))
    run.engine.run()
    assert run.lines("deliver") == text(
        """
          0 deliver 0 Ordered(0,1) [0]
         10 deliver 0 Ordered(0,2) [0]
         20 deliver 0 Ordered(0,3) [0]
        112 deliver 1 Ordered(0,1) [112]
        112 deliver 1 Ordered(0,2) [102]
        """
    )
    assert (run.orders[1].held_total, run.orders[1].held_peak, run.orders[1].waiting()) == (2, 1, 1)
