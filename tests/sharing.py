"""How tests are shared out among processes: what takes longest begins first, what shares much stays together.

Left to itself, pytest-xdist deals tests out in the order of their names: Spark is started in both processes, so are all
experiments for the report, and the second pass over the core, which takes longest of all, begins when the rest is done.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

SECOND_PASS = "tests/test_compiled_and_plain.py::test_the_tests_of_the_core_pass"

LONGEST_FIRST = (
    SECOND_PASS,
    "tests/spark/",
    "tests/research/report/",
    "tests/cluster/test_nemesis.py",
    "tests/cli/",
    "tests/test_compiled_and_plain.py",
    "tests/torture/",
    "tests/research/",
    "tests/cluster/",
    "tests/test_documentation.py",
    "tests/test_site.py",
    "tests/test_packaging.py",
    "tests/services/",
    "tests/streams/",
    "tests/console/",
    "tests/fabrics/tree/",
    "tests/versions/",
    "tests/testing/",
    "tests/maelstrom/",
    "tests/mutation/",
)
"""Where the names of long tests begin; all others come after these, as they are found."""

TOGETHER = {
    "tests/spark/": "spark",
    "tests/pipeline/": "spark",
    "tests/audit/spark/": "spark",
    "tests/research/universes/": "spark",
    "tests/research/reproduction/test_reproduction.py": "spark",
    "tests/research/bench/test_sweep_bench.py": "spark",
    "tests/research/bench/test_topics_bench.py": "spark",
    "tests/research/report/": "report",
    "tests/research/cli/test_reproduce.py": "report",
    "tests/research/reproduction/test_figures.py": "report",
}
"""Folders and files whose tests share one Spark, or the results of small experiments."""

SHARE_SPARK = tuple(folder for folder, unit in TOGETHER.items() if unit == "spark")


def place_of(name: str) -> int:
    """Where a test stands in the line."""
    for place, beginning in enumerate(LONGEST_FIRST):
        if name.startswith(beginning):
            return place
    # Those of one process follow each other.
    return LONGEST_FIRST.index("tests/spark/") if name.startswith(SHARE_SPARK) else len(LONGEST_FIRST)


def unit_of(name: str) -> str:
    """What stays in one process: a folder, a file, or, of the second pass, each part by itself."""
    if name.startswith(SECOND_PASS):
        return name
    for folder, unit in TOGETHER.items():
        if name.startswith(folder):
            return unit
    return name.split("::", 1)[0]


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole units to processes, one after the other, in the order in which tests stand in the line."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
