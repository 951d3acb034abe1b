"""How the distributions of this repository are compiled: with mypyc, in pieces, on all cores, and only what changed.

The product (``setup.py``) and the laboratory (``research/setup.py``) are two groups of compiled modules. Classes of the
laboratory inherit from classes of the product, so its build looks at the sources of both and compiles its own.
Without a C compiler, or with ANTIPHON_PURE=1, the same sources are installed as plain Python; ``antiphon --version``
says which of the two is running.
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext

PRODUCT = (
    "kernel/*.py",
    "orders/*.py",
    "fabrics/*/*.py",
    "fabrics/*/*/*.py",
    "trace/recorder.py",
    "simulator/engine/actions.py",
    "simulator/engine/calendar.py",
    "simulator/engine/connections.py",
    "simulator/engine/engine.py",
    "simulator/engine/events.py",
    "simulator/engine/link_watches.py",
    "simulator/engine/node.py",
    "simulator/engine/reachability.py",
    "simulator/engine/transmission.py",
    "simulator/network/*.py",
    "api/batch.py",
    "api/outbox.py",
    "api/publisher.py",
    "api/receipts.py",
)
LABORATORY = ("protocols/*/*.py",)


def has_compiler() -> bool:
    """Whether a C compiler can be called under one of its usual names, and has Python's headers to work with."""
    compiler = any(shutil.which(name) for name in (os.environ.get("CC", "cc").split()[0], "gcc", "clang"))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").exists()


def modules(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """The files of a package that are compiled."""
    return sorted(str(path) for pattern in patterns for path in root.glob(pattern) if path.name != "__init__.py")


def extensions(product: Path, laboratory: Path | None = None) -> list[Extension]:
    """The compiled modules of the product, or those of the laboratory beside it; empty where none can be built."""
    if os.environ.get("ANTIPHON_PURE") or not has_compiler():
        print("antiphon: installing without compiled modules; simulations will be slower", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    groups = [(modules(product, PRODUCT), "antiphon")]
    wanted = "antiphon"
    if laboratory is not None:
        groups.append((modules(laboratory, LABORATORY), "antiphon_lab"))
        wanted = "antiphon_lab"
    files = [file for group, _ in groups for file in group]
    # What mypyc remembers of an earlier build lacks the C files and headers of librt that this one needs.
    with tempfile.TemporaryDirectory() as cache:
        arguments = ["--strict", f"--cache-dir={cache}", *files]
        built = mypycify(arguments, opt_level="3", debug_level="0", multi_file=True, separate=groups)
    wanted_modules = [each for each in built if each.name.partition(".")[0].removesuffix("__mypyc") == wanted]
    for each in wanted_modules:
        # Each C file defines the table of functions that its group takes from another; the linker makes them one.
        each.extra_compile_args.append("-fcommon")
    return wanted_modules


def is_current(object_file: Path) -> bool:
    """Whether an object is newer than everything that it was compiled from, as the compiler wrote it down."""
    try:
        inputs = object_file.with_suffix(".d").read_text().replace("\\\n", " ").split()[1:]
        built = object_file.stat().st_mtime
        return all(Path(name).stat().st_mtime <= built for name in inputs)
    except FileNotFoundError:
        return False


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
        changed = [name for name in objects if not is_current(Path(name))]
        changed.sort(key=lambda name: -os.path.getsize(build[name][0]))

        def compile_one(name: str) -> None:
            compiler._compile(name, build[name][0], build[name][1], arguments, extra, options)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for count, _ in enumerate(pool.map(compile_one, changed), 1):
                if count % 20 == 0 or 20 < count == len(changed):
                    print(f"antiphon: compiled {count} of {len(changed)} files", file=sys.stderr, flush=True)
        return list(objects)
