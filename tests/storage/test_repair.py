"""``verify`` finds damage, ``repair`` salvages what is whole and names what is lost; neither invents anything."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.storage.log import DurableLog
from antiphon.storage.log_formats import OffsetRemovedError
from antiphon.storage.log_topics import LogRetention
from antiphon.storage.repair import Repair, compacted, verified
from tests.storage.damaged_copies import PAGE_BYTES, PLENTY, Truth, contents, intact_log, overwrite, positions_of
from tests.storage.independent_check import stored_in

SHARE = 0.12
"""The part of all damages that is tried each time."""

FILES = ("log.sqlite", "log.sqlite-wal", "promised")
MIDDLE = "(select key from item where key >= 1 << 43 and key < 2 << 43 order by key limit 1 offset 5)"


def quiet(done: int, of: int) -> None:
    assert 0 <= done <= of


@pytest.fixture(scope="module", params=["closed", "killed"])
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    return intact_log(tmp_path_factory.mktemp("intact"), request.param == "killed")


def is_readable(directory: Path, truth: Truth) -> bool:
    """Whether a node could use a log as it is; on a copy, because opening repairs a torn write."""
    copy = directory.with_name(f"{directory.name} tried")
    shutil.copytree(directory, copy)
    try:
        with DurableLog.open(copy) as log:
            found = contents(log)
    except PeerError:
        return False
    finally:
        shutil.rmtree(copy)
    assert found == truth
    return True


def judge(directory: Path, truth: Truth) -> str:
    """Verify and repair a damaged log, and compare both with the truth."""
    before = {name: (directory / name).read_bytes() for name in FILES if (directory / name).exists()}
    could_be_read = is_readable(directory, truth)
    survey = verified(directory, quiet)
    assert not survey.is_whole or could_be_read, "damage was not found"
    assert {name: (directory / name).read_bytes() for name in before} == before, "verify has changed something"
    work = Repair(directory, None)
    found = work.result(work.run(quiet))
    if survey.is_whole:
        assert work.aside is None and {name: (directory / name).read_bytes() for name in before} == before
        return "whole"
    assert work.aside is not None
    assert {name: (work.aside / name).read_bytes() for name in before} == before, "the original has changed"
    compare(directory, found, truth)
    again = verified(directory, quiet)
    assert again.is_whole, again.damages
    return "repaired" if found["repaired"]["lost"] or not found["repaired"]["keeps_state"] else "restored"


def compare(directory: Path, found: dict[str, Any], truth: Truth) -> None:
    """The new log has what the old one had, but for what the result names; and nothing else."""
    stored = stored_in_holes(directory)
    entries, identity = truth
    ranges = [(each["topic"], range(each["first"], each["end"])) for each in found["repaired"]["lost"]]
    lost = {(topic, offset) for topic, offsets in ranges for offset in offsets}
    is_behind = found["promised"] is None or found["commit"] is None or found["commit"] < found["promised"]
    nameless = found["repaired"]["lost_batches_without_a_name"] or any(
        "with its name" in each for each in found["damages"]
    )
    for topic, true in entries.items():
        whole = {entry.first_offset: entry for entry in true}
        for first, count, batch in stored[0].get(topic, []):
            if first in whole:
                assert (whole[first].count, whole[first].batch) == (count, batch), "it has another content"
            else:
                assert is_behind and first < true[0].first_offset, "it was never written, or removed for good"
        there = {first for first, *_ in stored[0].get(topic, [])}
        for entry in true if topic in stored[0] or not nameless else ():
            is_named = all((topic, offset) in lost for offset in range(entry.first_offset, entry.next_offset))
            assert entry.first_offset in there or is_named or is_behind, "it is lost, and the result does not say so"
            assert not (entry.first_offset in there and is_named), "it is there, and the result says that it is lost"
    if found["repaired"]["keeps_state"]:
        assert stored[1].get("identity") == identity
    else:
        assert stored[1] == {}, "a part of the state is worse than none"
    with DurableLog.open(directory) as log:
        for topic in log.topics():
            end = log.latest(topic)
            assert log.append(topic, 1, 1 << 50, b"goes on") == end
            assert end >= entries[topic][-1].next_offset or is_behind


def stored_in_holes(directory: Path) -> tuple[dict[str, list[tuple[int, int, bytes]]], dict[str, bytes]]:
    """What SQLite alone finds in a log; unlike :func:`stored_in` it does not mind holes."""
    connection = sqlite3.connect(directory / "log.sqlite")
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    rows = connection.execute("select key, header, body from item order by key").fetchall()
    connection.close()
    records = {key + (1 << 40): msgspec.msgpack.decode(body[4:]) for key, _, body in rows if key < 0}
    topics: dict[str, list[tuple[int, int, bytes]]] = {}
    facts: dict[str, bytes] = {}
    for number, record in records.items():
        if number >= 1 << 20:
            facts[record[0]] = record[1]
        elif number > 0:
            topics[record[0]] = [
                (key % (1 << 43), int.from_bytes(header[8:16], "little"), body)
                for key, header, body in rows
                if key >= 0 and key >> 43 == number
            ]
    return topics, facts


def overwrite_in(name: str, position: int, content: bytes, copy: Path) -> None:
    overwrite(copy / name, position, content)


def cut_in(name: str, end: int, copy: Path) -> None:
    os.truncate(copy / name, end)


def remove_in(name: str, copy: Path) -> None:
    (copy / name).unlink()


def damages_of(directory: Path, generator: random.Random) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Flipped bits, torn and zeroed pages, and truncations, in all files."""
    for name in FILES:
        path = directory / name
        size = path.stat().st_size if path.exists() else 0
        for position in positions_of(path, generator) if size else ():
            flipped = bytes([path.read_bytes()[position] ^ 1 << generator.randrange(8)])
            yield f"bit at {position} of {name}", partial(overwrite_in, name, position, flipped)
        for _ in range(6 if size > PAGE_BYTES else 0):
            page, torn = generator.randrange(size // PAGE_BYTES) * PAGE_BYTES, generator.randrange(1, PAGE_BYTES)
            noise = generator.choice([bytes(PAGE_BYTES), generator.randbytes(PAGE_BYTES), bytes(torn)])
            yield f"page at {page} of {name}", partial(overwrite_in, name, page, noise)
        for _ in range(4 if size else 0):
            end = generator.randrange(size)
            yield f"{name} cut at {end}", partial(cut_in, name, end)
        if size:
            yield f"{name} removed", partial(remove_in, name)


def judged(directory: Path, name: str, damage: Callable[[Path], object], truth: Truth, scratch: Path) -> str:
    """Judge a damaged copy of a log."""
    shutil.copytree(directory, scratch / "copy")
    damage(scratch / "copy")
    try:
        return judge(scratch / "copy", truth)
    except BaseException as error:
        error.add_note(name)
        raise
    finally:
        for path in scratch.iterdir():
            shutil.rmtree(path)


def test_damaged_copies_are_found_and_salvaged(intact: tuple[Path, Truth], tmp_path: Path) -> None:
    directory, truth = intact
    seen: Counter[str] = Counter()
    generator = random.Random(3)
    for name, damage in damages_of(directory, generator):
        if generator.random() < SHARE:
            seen[judged(directory, name, damage, truth, tmp_path)] += 1
    assert seen["repaired"] + seen["restored"] > 2, "the copies are not damaged"


def test_an_intact_log_is_whole_and_left_as_it_is(intact: tuple[Path, Truth], tmp_path: Path) -> None:
    shutil.copytree(intact[0], tmp_path / "log")
    assert judge(tmp_path / "log", intact[1]) == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    found = verified(tmp_path / "log", quiet).result()
    assert {each["topic"]: each["next_offset"] for each in found["topics"]} == {
        topic: entries[-1].next_offset for topic, entries in intact[1][0].items()
    }


@pytest.fixture
def copy(intact: tuple[Path, Truth], tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact[0], tmp_path / "log"))


def change(directory: Path, statement: str) -> None:
    connection = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_a_damaged_batch_leaves_a_hole_and_the_rest_keeps_its_offsets(copy: Path, intact: tuple[Path, Truth]) -> None:
    change(copy, f"update item set body = zeroblob(length(body)) where key = {MIDDLE}")
    true = intact[1][0]["room"]
    work = Repair(copy, None)
    found = work.result(work.run(quiet))
    assert found["repaired"]["lost"] == [{"topic": "room", "first": true[5].first_offset, "end": true[5].next_offset}]
    with DurableLog.open(copy) as log:
        assert log.read("room", true[0].first_offset, PLENTY) == true[:5]
        assert log.read("room", true[6].first_offset, PLENTY) == true[6:]
        for offset in (true[5].first_offset, true[5].next_offset - 1):
            with pytest.raises(
                OffsetRemovedError, match="was damaged and is lost; the next one still there is"
            ) as caught:
                log.read("room", offset, PLENTY)
            assert caught.value.earliest == true[6].first_offset
        for entry in true:
            expected = next(e.first_offset for e in true if e.appended_at_us >= entry.appended_at_us and e != true[5])
            assert log.offset_at("room", entry.appended_at_us) == expected
        assert log.read("hall", log.earliest("hall"), PLENTY) == intact[1][0]["hall"]


def test_a_lost_end_is_not_used_again(copy: Path, intact: tuple[Path, Truth]) -> None:
    change(copy, "update item set body = zeroblob(1) where key = (select max(key) from item where key < 2 << 43)")
    true = intact[1][0]["room"]
    Repair(copy, None).run(quiet)
    with DurableLog.open(copy) as log:
        assert log.latest("room") == true[-1].next_offset
        with pytest.raises(OffsetRemovedError) as caught:
            log.read("room", true[-1].first_offset, PLENTY)
        assert caught.value.earliest == true[-1].next_offset
        log.append("room", 1, 1 << 50, b"new")
        log.commit()
        assert log.read("room", true[-1].next_offset, PLENTY)[0].batch == b"new"
        assert log.read("room", true[0].first_offset, PLENTY) == true[:-1]
    with DurableLog.open(copy) as log:
        assert log.verify() == sum(size.batch_count for size in log.topics().values())


def test_retention_goes_past_a_hole(copy: Path, intact: tuple[Path, Truth]) -> None:
    change(copy, f"delete from item where key = {MIDDLE}")
    Repair(copy, None).run(quiet)
    true = intact[1][0]["room"]
    with DurableLog.open(copy, retention=LogRetention(bytes=sum(len(entry.batch) for entry in true[7:]))) as log:
        log.trim(0)
        assert log.earliest("room") == true[7].first_offset
    with DurableLog.open(copy) as log:
        assert log.read("room", true[7].first_offset, PLENTY) == true[7:]
    stored_in(copy)


def test_a_damaged_structure_loses_nothing(copy: Path, intact: tuple[Path, Truth]) -> None:
    """The root of the tree is gone, and SQLite finds no row; each row is found on its own page, and the state stays."""
    DurableLog.open(copy).close()
    connection = sqlite3.connect(copy / "log.sqlite")
    (root,) = connection.execute("select rootpage from sqlite_schema where name = 'item'").fetchone()
    connection.close()
    overwrite(copy / "log.sqlite", (root - 1) * PAGE_BYTES, bytes(PAGE_BYTES))
    with pytest.raises(PeerError, match="antiphon log repair DIRECTORY salvages the rest"):
        DurableLog.open(copy)
    work = Repair(copy, None)
    found = work.result(work.run(quiet))
    assert found["verdict"] == "damaged" and found["repaired"]["keeps_state"] and not found["repaired"]["lost"]
    with DurableLog.open(copy) as log:
        assert contents(log) == intact[1]


def test_a_lost_name_is_not_invented(copy: Path, intact: tuple[Path, Truth]) -> None:
    change(copy, f"delete from item where key = {1 - (1 << 40)}")
    work = Repair(copy, None)
    found = work.result(work.run(quiet))
    assert found["repaired"]["lost_batches_without_a_name"] == len(intact[1][0]["room"])
    with DurableLog.open(copy) as log:
        assert contents(log)[0] == {name: entries for name, entries in intact[1][0].items() if name != "room"}


def test_another_place_leaves_the_damaged_log_where_it_is(copy: Path, tmp_path: Path) -> None:
    change(copy, f"delete from item where key = {MIDDLE}")
    before = (copy / "log.sqlite").read_bytes()
    Repair(copy, tmp_path / "new").run(quiet)
    assert (copy / "log.sqlite").read_bytes() == before
    assert verified(tmp_path / "new", quiet).is_whole
    with pytest.raises(UsageError, match="is not empty, perhaps from a repair that was interrupted; remove it first"):
        Repair(copy, tmp_path / "new").run(quiet)


def test_compacting_gives_the_space_back_and_changes_nothing(copy: Path, intact: tuple[Path, Truth]) -> None:
    with DurableLog.open(copy, retention=LogRetention(bytes=20_000)) as log:
        log.trim(0)
        left = contents(log)
    found = compacted(copy, lambda: None)
    assert found["bytes"] < found["bytes_before"] / 2
    with DurableLog.open(copy) as log:
        assert contents(log) == left != intact[1]
    assert verified(copy, quiet).is_whole
    change(copy, "delete from item where key = (select max(key) from item)")
    with pytest.raises(PeerError, match="is damaged"):
        compacted(copy, lambda: None)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "antiphon", "log", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_commands_answer_with_exit_codes_and_json(copy: Path, tmp_path: Path) -> None:
    whole = run("verify", str(copy), "--json")
    assert whole.returncode == 0 and msgspec.json.decode(whole.stdout)["verdict"] == "whole"
    assert run("compact", str(copy), "--json").returncode == 0
    change(copy, f"delete from item where key = {MIDDLE}")
    damaged = run("verify", str(copy))
    assert damaged.returncode == 1 and f"antiphon log repair {copy}" in damaged.stdout
    repaired = run("repair", str(copy))
    assert repaired.returncode == 1 and "lost: topic room, offsets" in repaired.stdout
    assert str(copy.with_name("log.damaged-1")) in repaired.stdout
    assert run("verify", str(copy)).returncode == 0
    assert run("repair", str(copy)).returncode == 0, "what was lost before is not lost again"
    empty = run("verify", str(tmp_path))
    assert empty.returncode == 2 and "holds no log" in empty.stderr
    assert not (tmp_path / "lock").exists(), "a directory that holds no log is left as it is"


def test_a_log_in_use_is_refused(copy: Path) -> None:
    with DurableLog.open(copy):
        for command in ("verify", "repair", "compact"):
            refused = run(command, str(copy))
            assert refused.returncode == 2 and f"a running node has {copy} open; stop the node first" in refused.stderr
            assert len(refused.stderr.strip().splitlines()) == 1, refused.stderr


def test_a_damaged_number_of_pages_does_not_lead_the_survey_astray(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Behind a damaged place of the write-ahead log no chain of checksums vouches for the numbers in its frames."""
    directory, _ = intact_log(tmp_path_factory.mktemp("killed"), is_killed=True)
    wal = directory / "log.sqlite-wal"
    overwrite(wal, 32 + 24 + 100, b"damaged")
    for frame in range(1, wal.stat().st_size // (PAGE_BYTES + 24)):
        overwrite(wal, 32 + frame * (PAGE_BYTES + 24) + 4, (0x7FFFFFF0).to_bytes(4, "big"))
    seen: list[int] = []
    survey = verified(directory, lambda _, of: seen.append(of))
    assert not survey.is_whole and max(seen) < 1000
    Repair(directory, tmp_path / "new").run(quiet)
    assert verified(tmp_path / "new", quiet).is_whole
