"""Compiles the protocols and the simulator's engine with mypyc where a C compiler exists.

Everything else about the package is in pyproject.toml. Without a compiler (or with ANTIPHON_PURE=1) the same sources
are installed as plain Python; ``antiphon --version`` says which of the two is running.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup

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
    return mypycify(["--strict", *files], opt_level="3", debug_level="0", group_name="antiphon")


setup(ext_modules=extensions())
