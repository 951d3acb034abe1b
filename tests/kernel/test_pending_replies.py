"""A question waits for each peer once, and for nobody who was not asked."""

from __future__ import annotations

from antiphon.kernel.pending_replies import PendingReplies


def test_a_question_is_answered_when_each_peer_has_replied_or_will_not() -> None:
    pending = PendingReplies([3, 1])
    pending.ask(2)
    assert pending.peers() == [3, 1, 2]
    assert pending.settle(1) and not pending.waits_for(1)
    assert not pending.settle(1), "a peer that is found again may reply again"
    assert not pending.settle(7), "it was not asked"
    assert pending.settle(3) and len(pending) == 1
    assert pending.settle(2) and len(pending) == 0


def test_a_question_that_is_given_up_waits_for_nobody() -> None:
    pending = PendingReplies([1])
    pending.clear()
    assert len(pending) == 0 and not pending.settle(1)
