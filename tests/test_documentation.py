"""What the documentation shows is what the code does: its examples are run as they stand."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from prometheus_client.core import CounterMetricFamily

from antiphon.node.consumer_metrics import CONSUMER_METRICS
from antiphon.node.settings import settings_from
from antiphon.node.status import CLIENT_METRICS, NODE_METRICS, TOPIC_METRICS

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 400
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    """The Python examples of a page that stand alone; those that need a trace file say where it comes from."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if "out/crash.parquet" not in block]


EXAMPLES = [(page.name, block) for page in PAGES for block in python_blocks(page)]


def output_of(*arguments: str) -> str:
    """What a program prints; in a process of its own, so that one that waits for ever fails and stops nothing else."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("page", "block"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_the_examples_of_a_page_run(page: str, block: str) -> None:
    output_of("-c", block)


def test_the_readme_has_an_example() -> None:
    assert "README.md" in [page for page, _ in EXAMPLES]


SPARK_EXAMPLE = ROOT / "examples" / "spark_windows.py"
"""It takes longer than all others."""

JUDGED = {
    ROOT / "examples" / f"{name}.py"
    for name in (
        "spark_windows",
        "chat",
        "worker",
        "replicated_bank",
        "wire_client",
        "question_and_answer",
        "live_question_and_answer",
    )
}
"""Examples with tests of their own, which know what they print."""


@pytest.mark.parametrize("script", sorted({*(ROOT / "examples").glob("*.py")} - JUDGED), ids=lambda path: path.name)
def test_the_example_scripts_run(script: Path) -> None:
    assert output_of(str(script))


def test_the_example_in_spark_publishes_averages_once() -> None:
    """Seconds 0 to 69 of two rooms, windows of 20: the mean of a window of the kitchen follows from its formula."""
    said = output_of(str(SPARK_EXAMPLE)).splitlines()
    results = [json.loads(line) for line in said[said.index("after 70 seconds:") + 1 : -1]]
    assert {(each["room"], each["from"][17:19], each["celsius"], each["readings"]) for each in results} == {
        (room, f"{start:02}", mean, 20)
        for start in (0, 20, 40)
        for room, mean in (("kitchen", round(20 + (start + 9.5) / 10, 2)), ("cellar", 12.0))
    }
    assert len(results) == 6
    assert said[-1].endswith("was run twice; there were 6 results, and there are 6")


def test_the_example_of_causal_order_says_what_it_says() -> None:
    assert output_of(str(ROOT / "examples" / "question_and_answer.py")).splitlines() == [
        "each once: ['answer', 'question']",
        "causal:    ['question', 'answer']",
    ]


def test_the_chat_shows_the_question_before_its_answer() -> None:
    assert output_of(str(ROOT / "examples" / "chat.py")).splitlines() == [
        "Clara sees 1. Anna: Where do we meet?",
        "Clara sees 2. Ben (answers 1): At the station.",
    ]


def test_a_worker_that_is_killed_does_each_job_once() -> None:
    said = output_of(str(ROOT / "examples" / "worker.py"))
    assert said == "60 jobs were done once, in order, by a worker that was started 3 times\n"


def test_replicas_of_a_bank_pay_once_and_agree() -> None:
    said = output_of(str(ROOT / "examples" / "replicated_bank.py")).splitlines()
    assert said == [
        "two customers wanted 70 of 100: 1 was paid, 1 was refused",
        "after the crash of node 1:",
        *3 * ["  {'anna': 10, 'ben': 20}"],
    ]


def test_the_live_example_hears_questions_before_their_answers() -> None:
    heard = output_of(str(ROOT / "examples" / "live_question_and_answer.py")).splitlines()
    questions = [f"question {number}" for number in (1, 2, 3)]
    assert [line for line in heard if line in questions] == questions
    assert [line for line in heard if line not in questions] == [f"answer to {question}" for question in questions]
    assert all(heard.index(question) < heard.index(f"answer to {question}") for question in questions)


def table_of(heading: str) -> list[list[str]]:
    """The cells of the table of operations.md whose first heading is this one."""
    lines = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[first + 2 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_metrics_in_the_documentation_are_those_of_a_node() -> None:
    written = {name for cells in table_of("metric") for name in re.findall(r"`(\w+)`", cells[0])}
    families = {f"antiphon_{name}": family for name, family in NODE_METRICS.items()}
    families |= {f"antiphon_topic_{name}": family for name, family in TOPIC_METRICS.items()}
    families |= {f"antiphon_client_{name}": family for name, family in CLIENT_METRICS.items()}
    families |= {f"antiphon_consumer_{name}": family for name, family in CONSUMER_METRICS.items()}
    counters = {name for name, family in families.items() if family is CounterMetricFamily}
    assert written == {f"{name}_total" if name in counters else name for name in families} | {"antiphon_healthy"}


def test_the_settings_file_in_the_documentation_is_one() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        assert settings_from(tomllib.loads(block), "operations.md").durability == "disk"


MOST_WORDS = 30


def test_the_glossary_is_short_sorted_and_of_words_that_are_used() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| \*\*([\w ]+)\*\* \|", text, re.MULTILINE)
    assert words == sorted(words)
    assert text.count("\n| ") - 1 == len(words) <= MOST_WORDS
    others = " ".join(page.read_text(encoding="utf-8").lower() for page in PAGES if page.name != "glossary.md")
    assert [word for word in words if not re.search(rf"\b{word}", others)] == []


def anchors_of(page: Path) -> set[str]:
    """The anchors that a renderer gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        file = page.parent / target if target else page
        assert file.exists(), f"{name_of(page)} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors_of(file), f"{name_of(page)} links to {target}#{anchor}, which has no such heading"


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "proofs").glob("*.md")), ids=name_of)
def test_the_index_of_proofs_names_every_page(page: Path) -> None:
    index = ROOT / "docs" / "proofs" / "README.md"
    assert page == index or f"]({page.name})" in index.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_and_modules_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:tests|examples|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"{name_of(page)} names {path}, which does not exist"
    for module in re.findall(r"\b(antiphon(?:\.\w+){2,}|antiphon_lab(?:\.\w+)+)", text):
        assert is_in_a_module(module), f"{name_of(page)} names {module}, which is not a module, nor something in one"


def sources_of(name: str) -> str | None:
    """The source text of a module or package, by its dotted name."""
    for home in (ROOT / "src", ROOT / "research"):
        place = home.joinpath(*name.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.exists():
                return file.read_text(encoding="utf-8")
    return None


def is_in_a_module(name: str) -> bool:
    """Whether a dotted name is a module or package, a word in the source of one, or a member of a class in it."""
    module, _, last = name.rpartition(".")
    if sources_of(name) is None and module.rpartition(".")[2][:1].isupper():
        return (
            is_in_a_module(module)
            and re.search(rf"def {last}\b", sources_of(module.rpartition(".")[0]) or "") is not None
        )
    return sources_of(name) is not None or re.search(rf"\b{last}\b", sources_of(module) or "") is not None
