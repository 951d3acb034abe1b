"""What is built installs into an empty environment, and works there."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import antiphon
from tests.archives import SAFELY

ROOT = Path(__file__).parent.parent
SOURCES = ("src", "pyproject.toml", "setup.py", "compiling.py", "slicing.py", "MANIFEST.in", "README.md")
PATIENCE_SECONDS = 400


def call(*command: str, within: Path | None = None, seconds: float = PATIENCE_SECONDS, **variables: str) -> str:
    """What a program prints, in an environment that knows nothing of this repository."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANTIPHON"))}
    done = subprocess.run(
        command,
        cwd=within,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**clean, **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked; a copy of the repository makes it, so that nothing is left in this one."""
    place = tmp_path_factory.mktemp("packaging")
    copy = place / "copy"
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, copy)
    call(sys.executable, "setup.py", "-q", "sdist", within=copy, ANTIPHON_PURE="1")
    (archive,) = (copy / "dist").glob("antiphon-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(place, **SAFELY)
    (unpacked,) = place.glob("antiphon-*")
    return unpacked


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without compiled modules, made from the source distribution."""
    place = tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    call(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", str(place), str(source), ANTIPHON_PURE="1")
    (built,) = place.glob("antiphon-*-none-any.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment that has the wheel; the packages that it needs come from this environment."""
    place = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", "--without-pip", str(place))
    interpreter = str(place / "bin" / "python")
    call(sys.executable, "-m", "pip", "--quiet", "--python", interpreter, "install", "--no-deps", str(wheel))
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(each for each in sys.path if each.endswith("site-packages")))
    assert call(interpreter, "-c", "import antiphon; print(antiphon.__file__)").startswith(str(packages))
    return interpreter


@pytest.fixture(scope="module")
def client_wheel(source: Path) -> Path:
    """The wheel of the client alone, made beside the sources of the product."""
    folder = source / "client"
    shutil.copytree(ROOT / "client", folder, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))
    call(sys.executable, "-W", "ignore", "setup.py", "-q", "bdist_wheel", within=folder)
    (built,) = (folder / "dist").glob("antiphon_client-*-none-any.whl")
    return built


@pytest.fixture(scope="module")
def client_folder(client_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of the client and the packages that it declares, and nothing else."""
    place = tmp_path_factory.mktemp("client")
    with zipfile.ZipFile(client_wheel) as packed:
        packed.extractall(place)
        (metadata,) = [name for name in packed.namelist() if name.endswith("METADATA")]
        needed = re.findall(r"^Requires-Dist: ([\w-]+)", packed.read(metadata).decode(), re.MULTILINE)
    for name in needed:
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                target = place / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
    return place


ASKS = """
import sys, antiphon
async def main():
    async with antiphon.connect(sys.argv[1]) as client:
        room = await client.subscribe("room").ready()
        await client.publish("room", b"why?")
        print((await anext(aiter(room))).value.decode(), antiphon.__file__)
antiphon.run(main())
"""


def test_the_client_alone_works_with_what_it_declares_and_is_small(client_folder: Path) -> None:
    """-S leaves out all packages but those of the folder."""

    def asked(address: str) -> str:
        return call(sys.executable, "-S", "-c", ASKS, address, PYTHONPATH=str(client_folder))

    async def serve() -> str:
        async with antiphon.start() as node:
            return await asyncio.to_thread(asked, node.address)

    said, place = antiphon.run(serve()).split()
    assert said == "why?" and place.startswith(str(client_folder))
    assert sum(file.stat().st_size for file in client_folder.rglob("*") if file.is_file()) < 30 << 20
    assert not [file for file in (client_folder / "antiphon").rglob("*.py") if "cli" in file.parts]


def test_the_client_alone_says_what_to_install_for_a_node(client_folder: Path) -> None:
    ask = "import antiphon\ntry: antiphon.start\nexcept AttributeError as error: print(error)"
    said = call(sys.executable, "-S", "-c", ask, PYTHONPATH=str(client_folder))
    assert "antiphon-client is installed, which cannot run nodes" in said


def test_a_wheel_has_the_product_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"antiphon"}
    assert "antiphon/py.typed" in names
    assert {"antiphon/console/pages/index.html", "antiphon/console/pages/diagram.js"} <= set(names)
    assert wheel.stat().st_size < 2 << 20


def test_the_example_of_the_readme_runs_where_only_the_wheel_is_installed(python: str) -> None:
    (example, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    call(python, "-c", example)


def test_the_command_answers_there_and_says_that_it_is_not_compiled(python: str) -> None:
    command = str(Path(python).with_name("antiphon"))
    assert "not compiled" in call(command, "--version")
    assert "Run one node" in call(command, "--help")


def test_a_client_loads_nothing_that_only_nodes_and_commands_need(python: str) -> None:
    loaded = call(python, "-c", "import sys, antiphon; antiphon.connect; print(*sys.modules)").split()
    heavy = {"numpy", "pyarrow", "pyspark", "prometheus_client", "rich", "sqlite3", "typer", "uvloop"}
    assert heavy & set(loaded) == set()
