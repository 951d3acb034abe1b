"""Compiles the protocols and the simulator's engine with mypyc where a C compiler exists.

Everything else about the package is in pyproject.toml. Without a compiler (or with ANTIPHON_PURE=1) the same sources
are installed as plain Python; ``antiphon --version`` says which of the two is running.
"""

import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

COMPILED = (
    "kernel/*.py",
    "orders/*.py",
    "fabrics/*/*.py",
    "trace/recorder.py",
    "simulator/actions.py",
    "simulator/calendar.py",
    "simulator/engine.py",
    "simulator/connections.py",
    "simulator/events.py",
    "simulator/links.py",
    "simulator/network.py",
    "simulator/node.py",
    "live/batch.py",
    "live/outbox.py",
    "live/publisher.py",
    "live/receipts.py",
)


def has_compiler() -> bool:
    """Whether a C compiler can be called under one of its usual names, and has Python's headers to work with."""
    compiler = any(shutil.which(name) for name in (os.environ.get("CC", "cc").split()[0], "gcc", "clang"))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").exists()


def extensions() -> list:
    """The compiled modules; empty where they cannot or should not be built."""
    if os.environ.get("ANTIPHON_PURE") or not has_compiler():
        print("antiphon: installing without compiled modules; simulations will be slower", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    root = Path("src/antiphon")
    files = sorted(str(path) for pattern in COMPILED for path in root.glob(pattern) if path.name != "__init__.py")
    return mypycify(["--strict", *files], opt_level="3", debug_level="0", multi_file=True, group_name="antiphon")


def inputs_of(object_file: Path) -> list[Path]:
    """The files that an object was compiled from, as the compiler wrote them down; empty if nobody knows."""
    try:
        words = object_file.with_suffix(".d").read_text().replace("\\\n", " ").split()
    except FileNotFoundError:
        return []
    return [Path(word) for word in words[1:]]


def is_current(object_file: Path) -> bool:
    """Whether an object is newer than everything that it was compiled from."""
    inputs = inputs_of(object_file)
    if not inputs or not object_file.exists():
        return False
    built = object_file.stat().st_mtime
    return all(path.exists() and path.stat().st_mtime <= built for path in inputs)


class ParallelBuild(build_ext):
    """Compiles the C files of an extension side by side, only those that changed, and shows how far it has come."""

    def build_extensions(self) -> None:
        self.compiler.compile = self.compile_side_by_side
        super().build_extensions()

    def compile_side_by_side(
        self,
        sources: list[str],
        output_dir: str | None = None,
        macros: Any = None,
        include_dirs: list[str] | None = None,
        debug: bool = False,
        extra_preargs: list[str] | None = None,
        extra_postargs: list[str] | None = None,
        depends: list[str] | None = None,
    ) -> list[str]:
        """Do what ``CCompiler.compile`` does, on all cores."""
        compiler = self.compiler
        macros, objects, extra, options, build = compiler._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        arguments = compiler._get_cc_args(options, debug, [*(extra_preargs or []), "-MMD"])
        # The largest files first, so that no core is left alone with one in the end.
        todo = sorted(
            (name for name in objects if not is_current(Path(name))), key=lambda name: -os.path.getsize(build[name][0])
        )

        def compile_one(name: str) -> None:
            compiler._compile(name, build[name][0], build[name][1], arguments, extra, options)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for count, _ in enumerate(pool.map(compile_one, todo), 1):
                if count % 20 == 0 or 20 < count == len(todo):
                    print(f"antiphon: compiled {count} of {len(todo)} files", file=sys.stderr, flush=True)
        return list(objects)


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
