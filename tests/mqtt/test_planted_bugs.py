"""Typical bugs of groups and sessions, planted one at a time: the judges of the other tests find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.mqtt import moving
from antiphon.mqtt.protocol.incoming import IncomingMessages
from antiphon.mqtt.protocol.outgoing import OutgoingMessages
from antiphon.mqtt.protocol.sharing import ShareGroup
from antiphon.mqtt.session import Overlaps
from tests.mqtt import test_moving, test_shares, test_sharing


def all_seeds() -> None:
    for seed in range(40):
        test_sharing.test_nothing_is_passed_over_when_doors_come_and_go(seed)


def shallow(parts_of: Callable[..., list[moving.MovedState]]) -> Callable[..., list[moving.MovedState]]:
    """Hands over a session without what is under way."""
    return lambda key, session: [
        moving.MovedState(*each_key(each), each.messages, each.is_last) for each in parts_of(key, session)
    ]


def each_key(state: moving.MovedState) -> tuple[str, str]:
    return state.client, state.client_id


BUGS: list[tuple[str, Any, str, Any, Callable[[], None]]] = [
    (
        "a new owner forgets what it held back",
        ShareGroup,
        "_changed",
        lambda original: lambda self, was: original(self, was) and [],
        all_seeds,
    ),
    (
        "every door hands messages out",
        ShareGroup,
        "is_owned_here",
        lambda _: property(lambda self: self.own is not None),
        test_sharing.test_each_message_goes_to_one_member_and_all_members_get_as_many,
    ),
    (
        "a door does not heed what the owner has told of",
        ShareGroup,
        "handed_out",
        lambda _: lambda *_: None,
        test_sharing.test_only_what_the_last_owner_did_not_tell_of_comes_twice,
    ),
    (
        "the same member gets everything",
        ShareGroup,
        "next_member",
        lambda _: lambda self: self._members[0],
        test_sharing.test_each_message_goes_to_one_member_and_all_members_get_as_many,
    ),
    (
        "each of several subscriptions sends the message",
        Overlaps,
        "is_first",
        lambda _: lambda *_: True,
        test_shares.test_a_message_that_several_subscriptions_match_comes_once_for_all_of_them,
    ),
    (
        "a session moves without what is under way",
        moving,
        "parts_of",
        shallow,
        test_moving.test_what_is_under_way_goes_on_with_its_identifiers_in_both_directions,
    ),
    (
        "a session moves without what its client has not released",
        IncomingMessages,
        "unreleased",
        lambda _: lambda *_: [],
        test_moving.test_what_is_under_way_goes_on_with_its_identifiers_in_both_directions,
    ),
    (
        "a release that is under way moves as nothing",
        OutgoingMessages,
        "state",
        lambda original: lambda self: ([each for each in original(self)[0] if each[1] is not None], 0),
        test_moving.test_what_is_under_way_goes_on_with_its_identifiers_in_both_directions,
    ),
]


@pytest.mark.parametrize(("place", "name", "bug", "judge"), [row[1:] for row in BUGS], ids=[row[0] for row in BUGS])
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, bug: Any, judge: Callable[[], None]
) -> None:
    monkeypatch.setattr("tests.mqtt.raw_client.SECONDS", 1.0)
    monkeypatch.setattr(place, name, bug(getattr(place, name)))
    with pytest.raises((AssertionError, TimeoutError)):
        judge()
