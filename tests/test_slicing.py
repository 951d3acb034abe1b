"""A change to one module changes the C file of that module, and of others only where they use what changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

GENERATE = """
import sys
from pathlib import Path
from mypyc.build import mypycify
from slicing import Slicer
files = ["package/first.py", "package/second.py"]
groups = [(files, "package"), (["others/other.py"], "others")]
arguments = [f"--cache-dir={sys.argv[1]}", *files, "others/other.py"]
for each in mypycify(arguments, multi_file=True, separate=groups, target_dir="c"):
    if each.name.endswith("__mypyc"):
        group = each.name.removesuffix("__mypyc")
        Slicer(group, [Path(source) for source in each.sources]).write_into(Path("sliced"))
"""

FIRST = """
class First:
    def __init__(self, number: int) -> None:
        self.number = number

    def text(self) -> str:
        return f"the first has {self.number}"
"""
CHANGED = """
class Earlier:
    def __init__(self, text: str) -> None:
        self.text = text

    def said(self) -> str:
        return f"a text that was not there: {self.text}"


class First:
    def __init__(self, number: int) -> None:
        self.number = number

    def text(self) -> str:
        return f"the first has {self.number}"
"""
SECOND = """
from package.first import First


def second(first: First) -> str:
    return f"the second has {first.text()}"
"""
OTHER = """
from package.first import First


def other(first: First) -> str:
    return f"the other has {first.text()}"
"""


def generated(folder: Path, first: str) -> dict[str, str]:
    """The C files, sliced and as mypyc wrote them, by name."""
    for package in ("package", "others"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    for name, text in {"package/first.py": first, "package/second.py": SECOND, "others/other.py": OTHER}.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-c", GENERATE, str(folder / "cache")]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env={"PYTHONPATH": str(ROOT)})
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.c")}


@pytest.mark.skipif(sys.platform != "linux", reason="files are sliced on Linux only")
def test_a_change_to_one_module_leaves_the_c_files_of_others_as_they_are(tmp_path: Path) -> None:
    before, after = generated(tmp_path / "before", FIRST), generated(tmp_path / "after", CHANGED)
    changed = {name for name in before if before[name] != after[name]}
    # mypyc numbers the literals anew, and the file that defines an array or a table knows all places in it.
    assert "c/__native_package___second.c" in changed
    assert {name for name in changed if name.startswith("sliced")} == {
        "sliced/__native_package.c",
        "sliced/__native_package___first.c",
        "sliced/__native_others.c",
    }
