"""Names of topics on both sides stand for each other, one for one."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.api.topic_names import checked_name, checked_pattern, matches
from antiphon.kernel.errors import UsageError
from antiphon.mqtt.protocol.reasons import MqttError, Reason
from antiphon.mqtt.topics import filter_matches, mqtt_name, topic_name, topic_patterns

LEVELS = st.text(
    st.sampled_from("ab%02F. *>é\t$") | st.characters(exclude_characters="\0+#/", exclude_categories=["Cs"]), max_size=6
)
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(lambda name: 0 < len(name.encode()) < 40)


@given(NAMES)
def test_a_name_of_mqtt_is_a_topic_and_comes_back(name: str) -> None:
    assert mqtt_name(checked_name(topic_name(name))) == name


def test_a_topic_is_a_name_of_mqtt_and_comes_back() -> None:
    words = ["".join(letters) for size in range(1, 5) for letters in product("%02F/+#a.", repeat=size)]
    for topic in words:
        try:
            checked_name(topic)
        except UsageError:
            continue
        name = mqtt_name(topic)
        assert not set(name) & {"+", "#"}
        assert topic_name(name) == topic


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("orders/new", "orders.new"),
        ("/a//b", "%00.a.%00.b"),
        ("kitchen 1/23.5", "kitchen%201.23%2E5"),
        ("a/*/>", "a.%2A.%3E"),
        ("%%x%2Fy", "x/y"),
    ],
)
def test_special_characters_are_escaped(name: str, topic: str) -> None:
    assert topic_name(name) == topic
    assert mqtt_name(topic) == name


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(MqttError, match="255 bytes") as error:
        topic_name("é" * 200)
    assert error.value.reason == Reason.TOPIC_NAME_INVALID


WORDS = st.sampled_from(["a", "b", "", "x.y", "*"])
FILTERS = st.tuples(
    st.lists(WORDS | st.just("+"), min_size=1, max_size=3), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join(parts[0] + parts[1]))  # fmt: skip


@given(FILTERS.filter(bool), st.lists(WORDS, min_size=1, max_size=4).map("/".join).filter(bool))
def test_the_patterns_of_a_filter_match_what_it_matches(mqtt_filter: str, name: str) -> None:
    patterns = [checked_pattern(each) for each in topic_patterns(mqtt_filter)]
    assert sum(matches(pattern, topic_name(name)) for pattern in patterns) == filter_matches(mqtt_filter, name)


@pytest.mark.parametrize(
    ("mqtt_filter", "name", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/monitor", False),
        ("+/monitor", "$SYS/monitor", False),
        ("$SYS/#", "$SYS/monitor", True),
    ],
)
def test_filters_match_as_the_specification_says(mqtt_filter: str, name: str, expected: bool) -> None:
    assert filter_matches(mqtt_filter, name) is expected


@pytest.mark.parametrize("mqtt_filter", ["", "sport/tennis#", "sport/tennis/#/ranking", "sport+", "/".join("a" * 200)])
def test_what_is_no_filter_is_refused(mqtt_filter: str) -> None:
    with pytest.raises(MqttError) as error:
        topic_patterns(mqtt_filter)
    assert error.value.reason == Reason.TOPIC_FILTER_INVALID
