"""Runs a benchmark command in a process of its own, so that it has its own peak of memory and a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from antiphon.kernel.errors import PeerError, UsageError

Result = TypeVar("Result")


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter.

    -P: files in the current directory must not be imported instead of the installed package.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def run_antiphon(arguments: Sequence[str], kind: type[Result], title: str) -> Result:
    """Run an ``antiphon`` command that prints one JSON object, and decode it; ``title`` names the run in errors."""
    done = subprocess.run(python_module("antiphon", *arguments), capture_output=True, check=False)
    complaint = done.stderr.decode().strip().removeprefix("antiphon: ")
    if done.returncode == 2:
        raise UsageError(complaint)
    if not done.stdout:
        raise PeerError(f"{title} ended with code {done.returncode}: {complaint or 'it may have run out of memory'}")
    return msgspec.json.decode(done.stdout, type=kind)
