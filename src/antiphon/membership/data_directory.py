"""The name of a data directory, and the mistakes with data directories that nodes refuse.

A data directory keeps the name of its cluster, its fabric, and a name of its own: that of the first life that used it.
A node says the directory's name in the first frame of each connection. So the others see two nodes that run with copies
of one directory, and a broker that claims an identifier of theirs with the directory of another tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.membership.host import Connection, Facts
from antiphon.membership.messages import Hello

DIRECTORY: Final = "directory"
CLUSTER: Final = "cluster"


def directory_name(facts: Facts, instance: str) -> str:
    """The name of the data directory, which gets that of this life if it has none; empty without a directory."""
    if not facts.is_kept:
        return ""
    kept = facts.read(DIRECTORY)
    if kept is None:
        facts.put(DIRECTORY, instance.encode())
        return instance
    return kept.decode()


def foreign_directory(facts: Facts, cluster: str, fabric: str) -> str:
    """Why this data directory cannot be used; empty if it can, and is used for this cluster from now on."""
    here = f"{cluster} {fabric}".encode()
    kept = facts.read(CLUSTER) if facts.is_kept else here
    if kept is None:
        facts.put(CLUSTER, here)
    if kept in (None, here):
        return ""
    name, _, other = kept.decode().rpartition(" ")
    return (
        f"the data directory belongs to the cluster {name!r} with fabric {other}, and this node is started for "
        f"{cluster!r} with fabric {fabric}; start it with its own data directory, or with an empty one"
    )


class Directories:
    """The data directories of the others, as their lives named them."""

    def __init__(self, address: str, own: str) -> None:
        self._address = address
        self._own = own
        self._names: dict[str, str] = {}

    def greeted(self, hello: Hello) -> None:
        """A life says which data directory it has."""
        if hello.directory:
            self._names[hello.instance] = hello.directory

    def copied(self, hello: Hello, connections: Sequence[Connection]) -> str:
        """The refusal of a node that runs with a copy of the data directory of a connected node; empty if none does.

        A node that was restarted has the address that it had, or its earlier life is not connected any more.
        """
        name = hello.directory
        others = [each.address for each in connections if name and self._names.get(each.instance) == name]
        running = [self._address] if name and name == self._own else []
        for address in [*running, *others]:
            if address != hello.address:
                return (
                    f"the node at {address} runs with the data directory of which the node at {hello.address} has a "
                    f"copy; stop one of them, and start it with an empty data directory"
                )
        return ""

    def foreign(self, hello: Hello, known: str) -> str:
        """The refusal of a broker that returns as ``known`` with another data directory; empty if it has the same."""
        name = self._names.get(known, "")
        if not name or not hello.directory or name == hello.directory:
            return ""
        return (
            f"broker {hello.identifier} of this tree has another data directory than the broker at {hello.address}; "
            f"start that one with the data directory of this tree, or with an empty one"
        )
