"""``antiphon demo``: the tour runs from end to end and leaves nothing but its pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.cli import output
from antiphon.cli.demo import command as demo
from antiphon_lab.cli import tour
from antiphon_lab.report.pictures import published_trees_svg
from tests.cli.conftest import Command


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, made the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_tour(command: Command, directory: Path) -> None:
    called = command("demo")
    assert called.code == 0
    for number, (title, _) in enumerate(demo.stages(), 1):
        assert f"{number}. {title}" in called.said
    assert "  node 0: why?\n  node 1: because you asked: why?\n" in called.said
    assert "80,000 deliveries" in called.said
    assert "20,002 messages, " in called.said
    assert '"room":"kitchen","celsius":20.95,"readings":20}' in called.said
    assert "there were 4 results, and there are 4" in " ".join(called.said.split())
    assert "4,096 deliveries" in called.said
    assert "nothing violated" in called.said
    assert "SRPT / VCube-PS, 256 nodes" in called.said
    assert "differs" not in called.said
    written = [path.relative_to(directory) for path in directory.rglob("*") if path.is_file()]
    assert written == [Path("out/trees.svg")]
    assert (directory / "out/trees.svg").read_text(encoding="utf-8") == published_trees_svg()


def test_what_the_tour_writes_is_ignored_by_git() -> None:
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "/out/" in ignored


def test_the_tree_on_the_terminal(directory: Path) -> None:
    with output.console.capture() as captured:
        tour.show_tree(demo.Tour(directory / "pictures", 1))
    numbers = [line.split()[-1] for line in captured.get().splitlines() if line.split()[-1].isdigit()]
    assert numbers == [str(identifier) for identifier in range(16)]
    assert (directory / "pictures" / "trees.svg").exists()


def test_the_same_seed_tells_the_same_story(directory: Path) -> None:
    def story(seed: int) -> str:
        with output.console.capture() as captured:
            tour.show_broadcast(demo.Tour(directory, seed))
        return captured.get()

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_a_place_that_cannot_be_written_is_named(
    command: Command, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "stages", lambda: [("One tree", tour.show_tree)])
    (directory / "file").write_text("not a directory", encoding="utf-8")
    called = command("demo", "--out", "file")
    assert called.code == 1
    assert "cannot write file/trees.svg" in called.complained
    assert "choose another place with --out" in called.complained
