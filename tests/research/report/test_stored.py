"""Results from files are those that were measured, and files that are none are told from them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.report.stored import Result, load
from antiphon_lab.reproduction.registry import EXPERIMENTS


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.encode(content))
    return file


def test_files_give_back_what_was_measured_in_the_order_of_the_registry(tmp_path: Path, results: list[Result]) -> None:
    last, first = results[3:], results[:3]
    files = [write(tmp_path / f"{number}.json", {"experiments": part}) for number, part in enumerate((last, first))]
    assert load(files) == results
    assert load([tmp_path]) == results


def test_the_output_directory_of_reproduce_is_read(tmp_path: Path, results: list[Result]) -> None:
    for result in results:
        write(tmp_path / "reports" / f"{result.name}.json", result)
    write(tmp_path / "reports" / ".half.json.partial", "nothing")
    write(tmp_path / "measurements" / "other.json", {"no": "result"})
    assert load([tmp_path]) == results
    assert load([tmp_path / "reports" / results[0].name.partition("/")[0]]) == [
        result for result in results if result.name.startswith(results[0].name.partition("/")[0] + "/")
    ]


def test_of_an_experiment_that_comes_twice_the_last_counts(tmp_path: Path, results: list[Result]) -> None:
    newer = msgspec.structs.replace(results[0], seconds=-1.0)
    files = [write(tmp_path / "a.json", results[0]), write(tmp_path / "b.json", newer)]
    assert load(files) == [newer]
    assert load(files[::-1]) == [results[0]]


def test_results_of_experiments_that_are_gone_come_last(tmp_path: Path, results: list[Result], hostile: Result) -> None:
    assert hostile.name not in {experiment.name for experiment in EXPERIMENTS}
    write(tmp_path / "all.json", {"experiments": [hostile, *results]})
    assert load([tmp_path]) == [*results, hostile]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"experiments": [{}]}', b"\xff\xfe", b'{"name": "x"}'])
def test_a_file_that_is_no_result_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"bad.json is not an output of antiphon reproduce --json"):
        load([tmp_path / "bad.json"])


def test_nothing_to_report_on(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no results to report on"):
        load([tmp_path])
    with pytest.raises(UsageError, match="there is no file or directory"):
        load([tmp_path / "absent"])
