"""What can be wrong with options, found before anybody is asked; and that what is secret is not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon import UsageError
from antiphon.spark.options import DataLossError, read_options

SERVERS = {"servers": "127.0.0.1:7400"}
ROOM = {**SERVERS, "subscribe": "room"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "room"}, "option 'servers' is missing"),
        ({"servers": "nowhere", "subscribe": "room"}, "'nowhere' is no address"),
        (
            {**ROOM, "maxOffsetPerTrigger": "1"},
            "no option 'maxOffsetPerTrigger'; the nearest one is 'maxOffsetsPerTrigger'",
        ),
        ({**ROOM, "assign": "{}"}, "give one of the options 'subscribe', 'subscribePattern', 'assign', not"),
        (SERVERS, "not none of them"),
        ({**SERVERS, "subscribe": " , "}, "names no topic"),
        ({**SERVERS, "subscribe": "room.*"}, "is a pattern"),
        ({**SERVERS, "subscribePattern": "("}, "no regular expression"),
        ({**SERVERS, "assign": '{"room":7}'}, "option 'assign' cannot be read"),
        ({**SERVERS, "assign": '{"room":[]}'}, "names no partitions"),
        ({**ROOM, "startingOffsets": "latest"}, "cannot be 'latest'"),
        ({**ROOM, "startingOffsets": "soon"}, "option 'startingOffsets' cannot be read"),
        ({**ROOM, "startingOffsets": '{"room":{"7":-1}}'}, "leave nothing to read"),
        ({**ROOM, "startingOffsets": '{"room":{"7":-3}}'}, "an offset below -2"),
        ({**ROOM, "endingOffsets": "earliest"}, "cannot be 'earliest'"),
        ({**ROOM, "endingOffsets": '{"room":{"7":-2}}'}, "leave nothing to read"),
        ({**ROOM, "startingTimestamp": "today"}, "a whole number of at least 0, not 'today'"),
        ({**ROOM, "minPartitions": "0"}, "a whole number of at least 1, not '0'"),
        ({**ROOM, "failOnDataLoss": "maybe"}, "is true or false, not 'maybe'"),
        ({**ROOM, "tlsCertificate": "a.pem"}, "needs an authority"),
        ({**ROOM, "tlsAuthority": "a.pem", "tlsKey": "a.key"}, "go together"),
        ({**ROOM, "token": "a", "tokenFile": "b"}, "exclude each other"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(options, is_stream=False)
    assert complaint in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(UsageError, match="'endingOffsets' is for batch queries"):
        read_options({**ROOM, "endingOffsets": "latest"}, is_stream=True)


def test_defaults_are_those_of_kafka() -> None:
    batch, stream = (read_options(ROOM, is_stream) for is_stream in (False, True))
    assert (batch.start.everywhere, stream.start.everywhere, batch.end.everywhere) == (-2, -1, -1)
    assert (batch.fail_on_data_loss, batch.with_headers, batch.offsets_per_trigger) == (True, False, None)
    assert batch.minimal_partitions is None


def test_names_are_found_in_any_case_and_a_pattern_means_the_whole_name() -> None:
    options = read_options({"SERVERS": "127.0.0.1:1", "subscribepattern": "orders[.].*"}, is_stream=False)
    assert options.access.servers == ("127.0.0.1:1",)
    assert options.wants("orders.europe")
    assert not options.wants("my.orders.europe")


def test_tokens_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("very-secret\n")
    for given in ({"token": "very-secret"}, {"tokenFile": str(file)}):
        options = read_options({**ROOM, **given}, is_stream=False)
        assert options.access.token == "very-secret"
        assert "very-secret" not in f"{options!r} {options.access!r} {options}"


def test_what_is_lost_ends_a_query_unless_it_was_said_otherwise() -> None:
    with pytest.raises(DataLossError, match="gone; option failOnDataLoss=false reads the remaining data"):
        read_options(ROOM, is_stream=True).lost("gone")
    read_options({**ROOM, "failOnDataLoss": "False"}, is_stream=True).lost("gone")
