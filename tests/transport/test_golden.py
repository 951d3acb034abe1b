"""The bytes on the wire and in logs stay what they are, whatever their classes are called."""

from __future__ import annotations

import pytest

from antiphon.api.batch_codec import decode_columns, read_header
from antiphon.api.columns import Author
from antiphon.transport.codec import Codec
from antiphon.transport.schema import ENCLOSED, KINDS
from tests.transport.golden import BATCHES, CONTROLS, Example, demanded, examples, recorded, represented

RECORDED = recorded()
NOW = {example.label: example for example in examples()}


def test_every_message_has_a_representative() -> None:
    assert demanded() - represented() == set()


@pytest.mark.parametrize("label", RECORDED)
def test_bytes_stay_what_they_are(label: str) -> None:
    assert NOW[label].encoded.hex() == RECORDED[label].encoded.hex()


def test_the_file_knows_all_messages_and_their_names() -> None:
    names = {label: example.name for label, example in NOW.items()}
    recorded_names = {label: example.name for label, example in RECORDED.items()}
    assert names == recorded_names, "renamed or new: run python -m tests.transport.golden"


def is_sent_by_itself(example: Example) -> bool:
    family, number = example.label.split()
    return family == "control" or (family == "message" and KINDS[int(number.split(".")[0])] not in ENCLOSED)


@pytest.mark.parametrize("label", [label for label, example in RECORDED.items() if is_sent_by_itself(example)])
def test_recorded_bytes_are_read_as_the_same_message(label: str) -> None:
    codec = Codec(CONTROLS)
    message = codec.decode(RECORDED[label].encoded)
    codec.forget()
    assert type(message).__name__ == RECORDED[label].name.split("(")[0]
    # What was read is written from its fields, not from the bytes that came.
    encoded = codec.encode_control(message) if label.startswith("control") else codec.encode(message)  # type: ignore[arg-type]
    assert encoded.hex() == RECORDED[label].encoded.hex()


@pytest.mark.parametrize("kind", BATCHES)
def test_recorded_batches_are_read_as_they_were(kind: str) -> None:
    columns, author = BATCHES[kind]
    payload = RECORDED[f"batch {kind}"].encoded
    assert decode_columns(payload) == columns
    assert read_header(payload)[2] == Author(*author)
