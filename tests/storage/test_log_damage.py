"""A damaged log is refused or found out while it is read; it never gives wrong data, and never less without a word."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.storage.log import DurableLog
from tests.storage.damaged_copies import PAGE_BYTES, PLENTY, Truth, contents, intact_log, overwrite, positions_of


@pytest.fixture(scope="module", params=["closed", "killed"])
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A log as closing or a sudden death leaves it, and what is in it."""
    return intact_log(tmp_path_factory.mktemp("intact"), request.param == "killed")


def outcome(directory: Path, truth: Truth) -> str:
    """What happens to somebody who opens a damaged log, reads it, goes on writing, and reads again."""
    try:
        with DurableLog.open(directory) as log:
            assert contents(log) == truth
            for number in range(3):
                log.append("room", 1, 1000 + number, b"more" * 3000)
            log.commit()
            longer = contents(log)
        with DurableLog.open(directory) as log:
            assert contents(log) == longer
    except PeerError as error:
        message = str(error)
    else:
        return "harmless"
    assert str(directory) in message
    return "refused"


def test_a_flipped_bit_anywhere_is_found_out_or_harmless(intact: tuple[Path, Truth], tmp_path: Path) -> None:
    directory, truth = intact
    generator = random.Random(2)
    seen: Counter[str] = Counter()
    for name in ("log.sqlite", "log.sqlite-wal", "promised"):
        path = directory / name
        for position in positions_of(path, generator) if path.exists() and path.stat().st_size else []:
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(directory, copy)
            overwrite(copy / name, position, bytes([path.read_bytes()[position] ^ 1 << generator.randrange(8)]))
            try:
                seen[f"{name} {outcome(copy, truth)}"] += 1
            except BaseException as error:
                error.add_note(f"bit flipped at byte {position} of {name}")
                raise
    assert seen["log.sqlite refused"] > 3, "the checks do not look"
    if (directory / "log.sqlite-wal").exists():
        assert seen["log.sqlite-wal harmless"] == 0, "all of it was promised"


def test_other_damage_is_refused(intact: tuple[Path, Truth], tmp_path: Path) -> None:
    directory, truth = intact
    size = (directory / "log.sqlite").stat().st_size
    damages: dict[str, Callable[[Path], object]] = {
        "main file removed": lambda copy: (copy / "log.sqlite").unlink(),
        "mark removed": lambda copy: (copy / "promised").unlink(),
        "mark emptied": lambda copy: (copy / "promised").write_bytes(b""),
        "mark overwritten": lambda copy: (copy / "promised").write_bytes(bytes(1024)),
        "main file emptied": lambda copy: (copy / "log.sqlite").write_bytes(b""),
        "main file replaced by text": lambda copy: (copy / "log.sqlite").write_bytes(b"dear diary" * 1000),
    }
    if not (directory / "log.sqlite-wal").exists() or not (directory / "log.sqlite-wal").stat().st_size:
        damages["main file cut in half"] = lambda copy: os.truncate(copy / "log.sqlite", size // 2)
        damages["a page of zeros"] = lambda copy: overwrite(copy / "log.sqlite", 2 * PAGE_BYTES, bytes(PAGE_BYTES))
    else:
        damages["write-ahead log removed"] = lambda copy: (copy / "log.sqlite-wal").unlink()
    for name, damage in damages.items():
        copy = tmp_path / name
        shutil.copytree(directory, copy)
        damage(copy)
        names = sorted(path.name for path in copy.iterdir())
        assert outcome(copy, truth) == "refused", name
        assert set(names) <= {path.name for path in copy.iterdir()}, f"{name}: something was removed"


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("pragma user_version=2", r"has version 2, this Antiphon reads version 1; use the Antiphon that wrote it"),
        ("pragma application_id=5", "is not a log of Antiphon"),
        ("create table mine (x)", "its tables are not those of a log"),
        ("delete from item where key = {record} + 0", "record 0 is missing"),
        ("delete from item where key = {record} + 2", "record 2 is missing"),
        ("update item set body = 'text' where key = {record} + 1", "record 1 is missing"),
        (
            "update item set body = (select body from item where key = {record} + 2) where key = {record} + 1",
            "checksum",
        ),
        ("delete from item where key = (select max(key) from item)", "has no entry"),
        ("delete from item where key = (select min(key) from item where key > 0)", "has no entry"),
        ("update item set header = zeroblob(3) where key = (select max(key) from item)", "has no header"),
    ],
)
def test_a_changed_store_is_refused_and_the_message_says_why(
    intact: tuple[Path, Truth], tmp_path: Path, statement: str, complaint: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(intact[0], copy)
    connection = sqlite3.connect(copy / "log.sqlite", isolation_level=None)
    connection.execute(statement.format(record=-(1 << 40)))
    connection.close()
    with pytest.raises(PeerError, match=complaint):
        DurableLog.open(copy)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("delete from item where key = {middle}", "has no entry at offset"),
        ("update item set body = zeroblob(length(body)) where key = {middle}", "batch does not match its checksum"),
        ("update item set body = zeroblob(1) where key = {middle}", "batch does not match its checksum"),
        ("update item set key = key + 1 where key = {middle}", "header of an entry does not match"),
    ],
)
def test_a_changed_entry_is_found_out_when_it_is_read(
    intact: tuple[Path, Truth], tmp_path: Path, statement: str, complaint: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(intact[0], copy)
    entries = intact[1][0]["room"]
    connection = sqlite3.connect(copy / "log.sqlite", isolation_level=None)
    connection.execute(statement.format(middle=1 << 43 | entries[len(entries) // 2].first_offset))
    connection.close()
    with DurableLog.open(copy) as log:
        with pytest.raises(PeerError, match=complaint):
            log.read("room", log.earliest("room"), PLENTY)
        with pytest.raises(PeerError, match=complaint):
            log.verify()
        assert log.read("hall", log.earliest("hall"), PLENTY) == intact[1][0]["hall"]


def test_a_foreign_directory_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("chapter 1")
    with pytest.raises(UsageError, match=r"is not a log and not empty \(it has 'thesis.txt'\); name a new or an empty"):
        DurableLog.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(UsageError, match="is a file; a log needs a directory"):
        DurableLog.open(tmp_path / "thesis.txt")
    with pytest.raises(PeerError, match="check the disk and the rights"):
        DurableLog.open(tmp_path / "thesis.txt" / "below")
