"""Operations that do not do the same twice."""

from __future__ import annotations

import datetime
import random
import time

from hypothesis import strategies as st

from antiphon.services.advise import repeats
from antiphon.services.advise.pairs import Bench
from antiphon.services.advise.values import calls_of
from antiphon.services.description import describe
from tests.services.advise.banks import Bank, Unsteady


def found_in(service: type) -> repeats.RepeatFindings:
    description = describe(service)
    search = repeats.RepeatSearch(Bench(description), Bench(description))
    for calls in calls_of(description)[0].values():
        search.try_calls(st.tuples(st.just(()), calls), 5, 0)
    return search.found


def test_clocks_chance_and_the_world_are_found() -> None:
    mistakes = {name: mistake.what for name, mistake in found_in(Unsteady).mistakes.items()}
    assert mistakes.keys() == {"stamp", "date", "roll", "name", "look"}
    assert mistakes["look"] == "reaches for the world outside of the store (open)"
    assert mistakes["date"].startswith("does something else at another time")


def test_a_bank_does_the_same_twice() -> None:
    found = found_in(Bank)
    assert found.mistakes == {} and found.tried >= 15


def test_everything_is_as_before_afterwards() -> None:
    clocks = time.time, time.time_ns, datetime.datetime, datetime.date
    today = datetime.date.today()
    random.seed(5)
    expected = random.random()
    random.seed(5)
    with repeats.elsewhere([globals()]):
        assert time.time() > clocks[0]() + repeats.LATER_SECONDS - 60
        assert datetime.datetime.now().year > clocks[2].now().year
        assert datetime.date.today() > today
        one: object = today
        assert isinstance(one, datetime.date)
    assert (time.time, time.time_ns, datetime.datetime, datetime.date) == clocks
    assert random.random() == expected
