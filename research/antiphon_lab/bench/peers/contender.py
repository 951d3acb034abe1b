"""The interface of a contender: its server, if it has one, and its side inside every process.

Rounds, clocks, counting and warm-up are shared by all contenders. A contender uses its client as the client's
documentation advises for speed, and calls ``publish`` once per message.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import msgspec

TOPIC = "room"
"""All traffic goes over one topic."""

HOST = "127.0.0.1"

Arrived = Callable[[bytes], None]
"""Called with the payload of every message that a process receives, from any thread."""


class Place(msgspec.Struct, frozen=True):
    """The place of a process in a workload."""

    index: int
    publishes: bool
    receives: bool
    publisher_ports: list[int]
    """One free port per publisher, for contenders without a server; the first publishers have the first indexes."""
    server_port: int

    @property
    def own_port(self) -> int:
        """The port on which this publisher is reached."""
        return self.publisher_ports[self.index]


class Side(ABC):
    """A contender inside one process."""

    @abstractmethod
    async def open(self, arrived: Arrived) -> None:
        """Connect, and subscribe where the place receives."""

    @abstractmethod
    async def publish(self, payload: bytes, count: int) -> None:
        """Publish one payload ``count`` times, with one call of the client for each.

        A client without a loop of its own may block here; it receives in a thread then.
        """

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; messages in transit may be lost."""


class Contender(ABC):
    """One system of the comparison."""

    name: ClassVar[str]
    title: ClassVar[str]
    """For tables: the system and its client."""
    modules: ClassVar[tuple[str, ...]] = ()
    """Modules that must be importable."""
    distribution: ClassVar[str] = ""
    """The package on PyPI that brings the client."""
    program: ClassVar[str] = ""
    """The server, if it has one; the Debian package has the same name unless ``debian`` says otherwise."""
    debian: ClassVar[str] = ""
    published: ClassVar[str]
    """What a publisher knows when ``publish`` has returned."""
    settings: ClassVar[str]
    """The settings, for speed and against loss."""

    @abstractmethod
    def side(self, place: Place) -> Side:
        """The side of one process."""

    def server_command(self, port: int, directory: Path) -> list[str]:
        """The command line of the server; it may write files into the directory."""
        raise NotImplementedError(f"{self.name} has no server")

    def missing(self) -> str:
        """The missing packages and how to install them, as a sentence; empty if nothing is missing."""
        wanted = []
        if any(find_spec(module) is None for module in self.modules):
            wanted.append("pip install 'antiphon-lab[bench-peers]'")
        if self.program and self.find_program() is None:
            wanted.append(f"apt-get install {self.debian or self.program}")
        return f"not installed; run `{'` and `'.join(wanted)}`" if wanted else ""

    def find_program(self) -> str | None:
        """The path of the server; Debian keeps some servers outside of a normal user's path."""
        return shutil.which(self.program) or shutil.which(self.program, path="/usr/sbin:/usr/local/sbin")

    def client_version(self) -> str:
        """The client and its version."""
        try:
            return f"{self.distribution} {version(self.distribution)}"
        except PackageNotFoundError:
            return self.distribution

    def server_version(self) -> str:
        """The server and its version, as it reports itself; empty without a server."""
        program = self.find_program() if self.program else None
        if program is None:
            return ""
        said = subprocess.run([program, *self.version_arguments()], capture_output=True, check=False, timeout=10)
        found = re.search(r"\d+(\.\d+)+", (said.stdout + said.stderr).decode(errors="replace"))
        return f"{self.program} {found[0]}" if found else self.program

    def version_arguments(self) -> list[str]:
        """The arguments that make the server print its version."""
        return ["--version"]
