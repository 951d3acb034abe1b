"""Install what ``make dist`` has made into empty environments with pip, as users do, and try each of them.

python -m tests.distributions dist       # or: make dist-check

It needs an index of packages, or a pip that knows one, so the test suite has a smaller test (``test_packaging.py``).
It prints a table: seconds until pip was done, megabytes with everything that is needed, and how long commands take.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import antiphon
from tests.test_packaging import ASKS, call

ROOT = Path(__file__).parent.parent
INSTALL_SECONDS = 900
SLOWEST_COMMAND_SECONDS = 3.0
"""A bound for a busy machine; the aim on a quiet one is a tenth of it."""


@dataclass(frozen=True)
class Environment:
    """An environment in which something was installed."""

    place: Path
    seconds: float

    @property
    def python(self) -> str:
        return str(self.place / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.place / "bin" / "antiphon")

    def megabytes(self) -> float:
        packages = next(self.place.glob("lib/python*/site-packages"))
        return sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) / 1e6


def readme_example(environment: Environment) -> None:
    """The example of the README runs."""
    (example, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    call(environment.python, "-c", example)


def try_pure(environment: Environment) -> None:
    """A node and the commands, in plain Python."""
    assert "not compiled" in call(environment.command, "--version")
    readme_example(environment)


def try_compiled(environment: Environment) -> None:
    """A node and the commands, compiled; a scenario gives a verdict."""
    assert "not compiled" not in call(environment.command, "--version")
    readme_example(environment)
    call(environment.command, "simulate", str(ROOT / "examples" / "scenarios" / "crash.toml"), "--json")


def try_laboratory(environment: Environment) -> None:
    """The laboratory adds its commands."""
    assert "vcube-ps/" in call(environment.command, "reproduce", "--list")


def try_client(environment: Environment) -> None:
    """The client talks to a node of this environment, and has no commands."""

    async def serve() -> str:
        async with antiphon.start() as node:
            return await asyncio.to_thread(call, environment.python, "-c", ASKS, node.address)

    assert antiphon.run(serve()).startswith("why?")
    assert not Path(environment.command).exists()


CASES: dict[str, tuple[tuple[str, ...], Callable[[Environment], None]]] = {
    "pure wheel": (("antiphon-[0-9]*-none-any.whl",), try_pure),
    "compiled wheel": (("antiphon-[0-9]*-cp*.whl",), try_compiled),
    "source, not compiled": (("antiphon-[0-9]*.tar.gz",), try_pure),
    "client alone": (("antiphon_client-*-none-any.whl",), try_client),
    "with the laboratory": (("antiphon-[0-9]*-cp*.whl", "antiphon_lab-*-cp*.whl"), try_laboratory),
}
"""What is installed, and how it is tried."""


def installed(archives: list[Path], place: Path) -> Environment:
    """An environment of its own, in which pip has installed these archives and what they need."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(place / "bin/python")]
    began = time.monotonic()
    # Wheels are as they are; a source distribution is not compiled.
    call(*pip, "install", *map(str, archives), seconds=INSTALL_SECONDS, ANTIPHON_PURE="1")
    return Environment(place, time.monotonic() - began)


def command_seconds(environment: Environment) -> float | None:
    """The shorter of two answers of ``antiphon --help``; nothing if there are no commands."""
    if not Path(environment.command).exists():
        return None
    found = []
    for _ in range(3):
        began = time.monotonic()
        call(environment.command, "--help")
        found.append(time.monotonic() - began)
    return min(found)


def main() -> None:
    """Try all archives of a directory."""
    parser = argparse.ArgumentParser(description="Install archives into empty environments and try them.")
    parser.add_argument("dist", type=Path)
    parser.add_argument("--only", choices=list(CASES), action="append")
    chosen = parser.parse_args()
    for name in chosen.only or CASES:
        patterns, attempt = CASES[name]
        archives = [next(iter(sorted(chosen.dist.glob(pattern))), None) for pattern in patterns]
        missing = [pattern for pattern, archive in zip(patterns, archives, strict=True) if archive is None]
        if missing:
            sys.exit(f"{chosen.dist} has no {missing[0]}; run: make dist")
        with tempfile.TemporaryDirectory(prefix="antiphon-dist-") as folder:
            environment = installed([each for each in archives if each is not None], Path(folder))
            attempt(environment)
            seconds = command_seconds(environment)
            assert seconds is None or seconds < SLOWEST_COMMAND_SECONDS, seconds
            answer = "no commands" if seconds is None else f"--help {seconds:.2f} s"
            print(
                f"{name}: installed in {environment.seconds:.1f} s, {environment.megabytes():.0f} MB, {answer}",
                flush=True,
            )


if __name__ == "__main__":
    main()
