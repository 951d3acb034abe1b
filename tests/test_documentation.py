"""What the documentation shows is what the code does: its examples are run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    """The Python examples of a page that stand alone; those that need a trace file say where it comes from."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if "out/crash.parquet" not in block]


EXAMPLES = [(page.name, block) for page in PAGES for block in python_blocks(page)]


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_the_examples_of_a_page_run(page: str, block: str) -> None:
    exec(compile(block, page, "exec"), {"__name__": "example"})


def test_the_readme_has_an_example() -> None:
    assert "README.md" in [page for page, _ in EXAMPLES]


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_the_example_scripts_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


def test_the_example_of_causal_order_says_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "question_and_answer.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "each once: ['answer', 'question']",
        "causal:    ['question', 'answer']",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
