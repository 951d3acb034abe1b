"""Publications of different orders on one topic: none, fifo and causal by barriers.

:mod:`antiphon.orders.causal` says what each of them waits for. Where all publications are causal this is what causal
barriers do, and costs one comparison more per arrival.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

from antiphon.kernel.message import CAUSAL
from antiphon.orders.barriers import CausalBarrier
from antiphon.orders.causal import CausalOrder


@final
@mypyc_attr(acyclic=True)
class MixedOrder(CausalOrder):
    """Serves publications of all orders but total; ``strength`` is that of publications that name none."""

    def __init__(self, me: i64, strength: i64 = CAUSAL) -> None:
        super().__init__(me, CausalBarrier(), True, strength)
