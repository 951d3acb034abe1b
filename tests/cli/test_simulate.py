"""``antiphon simulate`` as people and programs call it."""

import io
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from antiphon.cli import main as command
from antiphon.cli import output, simulate
from antiphon.simulator.scenario import run
from antiphon.simulator.scenario.run import Result
from antiphon.trace.store import about_trace, read_trace

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
CRASH = str(EXAMPLES / "crash.toml")
LOSSY = str(EXAMPLES / "lossy.toml")

Antiphon = Callable[..., tuple[int | str | None, str, str]]
"""Calls the command; gives its exit code, standard output and standard error."""


@pytest.fixture
def antiphon(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Antiphon:
    """The command as it is called from a shell, without the shell."""

    def call(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["antiphon", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stopped:
            command.main()
        said, complained = capfdbinary.readouterr()
        return stopped.value.code, said.decode(), without_hint(complained.decode())

    return call


def without_hint(text: str) -> str:
    """What was said on standard error, except that the package is not compiled."""
    return "".join(line for line in text.splitlines(keepends=True) if "running without compiled modules" not in line)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_runs(antiphon: Antiphon, path: Path) -> None:
    code, said, complained = antiphon("simulate", path)
    # One of them shows a protocol that breaks its promises, and the exit code says so.
    assert (code, complained) == (1 if path.stem == "published" else 0, "")
    for label in ("system", "seed", "stopped", "published", "deliveries", "messages", "waiting", "speed"):
        assert label in said


def test_a_person_reads_a_table(antiphon: Antiphon) -> None:
    _, said, _ = antiphon("simulate", CRASH)
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert lines[:8] == [
        "a crash in the middle of a wave",
        "system 64 nodes, cube, broadcast, order none",
        "seed 7",
        "stopped finished at time 4,482 after 393 events",
        "published 4",
        "deliveries 195",
        "latency mean 386.0, maximum 816 ticks",
        "messages 385 sent, 6 lost",
    ]


def test_a_program_reads_json_and_nothing_else(antiphon: Antiphon) -> None:
    code, said, complained = antiphon("simulate", CRASH, "--json")
    assert (code, complained) == (0, "")
    result = msgspec.json.decode(said, type=Result)
    assert (result.deliveries, result.stopped, result.trace) == (195, "finished", None)
    assert list(json.loads(said)) == [field.name for field in msgspec.structs.fields(Result)]


def test_seed_and_nodes_replace_those_of_the_file(antiphon: Antiphon) -> None:
    def counts(*arguments: str) -> tuple[int, int, int, int]:
        found = json.loads(antiphon("simulate", LOSSY, "--json", *arguments)[1])
        return found["seed"], found["nodes"], found["deliveries"], found["end_time"]

    assert counts()[:2] == (3, 100)
    assert counts("--seed", "4")[:2] == (4, 100)
    assert counts("--seed", "4")[2:] != counts()[2:]
    assert counts("--nodes", "16")[:2] == (3, 16)


def test_a_trace_is_written_where_and_how_it_was_asked_for(antiphon: Antiphon, tmp_path: Path) -> None:
    for level, events in (
        ("deliveries", {"publish", "deliver", "drop", "crash", "restart", "stuck", "end"}),
        ("everything", None),
    ):
        path = tmp_path / "new" / f"{level}.parquet"
        code, said, _ = antiphon("simulate", CRASH, "--trace", path, "--level", level)
        table = read_trace(path)
        found = set(table.column("event").to_pylist())
        assert code == 0
        assert about_trace(table)["level"] == level
        assert found == (events or found | {"send", "receive"})
        assert f"{path}, {table.num_rows:,} rows" in said


def test_without_an_option_the_file_chooses_the_level(antiphon: Antiphon, tmp_path: Path) -> None:
    antiphon("simulate", CRASH, "--trace", tmp_path / "crash.arrow")
    assert about_trace(read_trace(tmp_path / "crash.arrow"))["level"] == "everything"


MISUSES = {
    "no such file": (["nowhere.toml"], 2, "antiphon: there is no scenario at nowhere.toml; check the name\n"),
    "a directory": ([EXAMPLES], 2, f"antiphon: {EXAMPLES} is a directory; name one scenario file in it, such as "),
    "a trace of counts": (
        [CRASH, "--level", "counts", "--trace", "a.parquet"],
        2,
        "antiphon: the level of the trace is counts, which has no rows; choose deliveries or everything, or no "
        "trace file\n",
    ),
    "a level without a trace": (
        [CRASH, "--level", "everything"],
        2,
        "antiphon: --level everything is the level of a trace; add for example: --trace trace.parquet\n",
    ),
    "a trace that is no trace": (
        [CRASH, "--trace", "a.csv"],
        2,
        "antiphon: a trace is written as .parquet, .arrow or .txt, not as 'a.csv'; change its ending\n",
    ),
    "a trace in a file": ([CRASH, "--trace", f"{CRASH}/a.parquet"], 1, "antiphon: cannot write the trace to "),
    "too few nodes": (
        [CRASH, "--nodes", "30"],
        2,
        f"antiphon: {CRASH}, line 22: fault 1, node: there is no node 32 among 30; choose from 0 to 29, "
        "for example: 15\n",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "complaint"), MISUSES.values(), ids=MISUSES.keys())
def test_misuse_is_explained_and_leaves_nothing_behind(
    antiphon: Antiphon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str | Path],
    code: int,
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    stopped, said, complained = antiphon("simulate", *arguments)
    assert (stopped, said) == (code, "")
    assert complained.startswith(complaint)
    assert complained.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_directory_as_a_trace_is_refused_before_the_run(antiphon: Antiphon, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    code, _, complained = antiphon("simulate", CRASH, "--trace", tmp_path / "a.parquet")
    assert code == 2
    assert complained == (
        f"antiphon: {tmp_path}/a.parquet is a directory; name a file in it, such as "
        f"{tmp_path}/a.parquet/trace.parquet\n"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to the superuser")
def test_a_place_where_nothing_may_be_written_is_named(antiphon: Antiphon, tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    code, _, complained = antiphon("simulate", CRASH, "--trace", tmp_path / "a.parquet")
    assert code == 1
    assert complained.startswith(f"antiphon: cannot write the trace to {tmp_path}/a.parquet: ")


def test_names_in_brackets_are_shown_as_they_are(antiphon: Antiphon, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("nodes = 64\nfault = [3]")
    _, _, complained = antiphon("simulate", tmp_path / "a.toml")
    assert complained == (
        f"antiphon: {tmp_path}/a.toml, line 2: fault 1: expected tables [[fault]], not 3; "
        'for example: fault = [{ at = 500, kind = "crash", node = 5 }]\n'
    )
    (tmp_path / "a.toml").write_text('name = "[bold]odd[/]"\nnodes = 2\nworkload = { kind = "once" }')
    _, said, _ = antiphon("simulate", tmp_path / "a.toml")
    assert said.startswith("[bold]odd[/]")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("time = 150", "time limit reached ([limits] time = 150), at time 1"),
        ("events = 10", "event limit reached ([limits] events = 10), at time "),
    ],
)
def test_running_out_is_said(antiphon: Antiphon, tmp_path: Path, limit: str, words: str) -> None:
    (tmp_path / "a.toml").write_text(f'nodes = 64\nworkload = {{ kind = "once" }}\n[limits]\n{limit}\n')
    code, said, _ = antiphon("simulate", tmp_path / "a.toml")
    assert code == 0
    assert words in said


def test_publications_that_were_not_made_are_mentioned(antiphon: Antiphon, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'nodes = 4\nworkload = { kind = "once" }\nfault = [{ at = 0, kind = "crash", node = 3 }]'
    )
    _, said, _ = antiphon("simulate", tmp_path / "a.toml")
    assert "3 of 4 planned; for the rest the node was not up, or the run over" in said


def test_help_has_an_example(antiphon: Antiphon) -> None:
    code, said, _ = antiphon("simulate", "--help")
    assert code == 0
    assert "antiphon simulate examples/scenarios/crash.toml" in said
    for option in ("--seed", "--nodes", "--trace", "--level", "--json"):
        assert option in said


def test_progress_is_shown_on_a_terminal(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(output, "errors", Console(file=screen, force_terminal=True, width=200))
    monkeypatch.setattr(run, "EVENTS_PER_SLICE", 1000)
    code, said, complained = antiphon("simulate", LOSSY, "--json")
    assert (code, complained) == (0, "")
    assert json.loads(said)["published"] == 100
    assert "a bad network: 10," in screen.getvalue()
    assert "events per second" in screen.getvalue()


def test_progress_is_plain_lines_elsewhere_and_rare(antiphon: Antiphon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "EVENTS_PER_SLICE", 1000)
    monkeypatch.setattr(simulate, "SECONDS_BETWEEN_LINES", float("inf"))
    assert antiphon("simulate", LOSSY)[2] == ""
    monkeypatch.setattr(simulate, "SECONDS_BETWEEN_LINES", 0.0)
    lines = antiphon("simulate", LOSSY)[2].splitlines()
    assert len(lines) == 10
    assert all(line.startswith("a bad network: ") and line.endswith(" events per second") for line in lines)
