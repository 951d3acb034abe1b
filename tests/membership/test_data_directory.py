"""Data directories that are copied, or of another cluster."""

from __future__ import annotations

import pytest

from antiphon.membership.data_directory import Directories, directory_name, foreign_directory
from antiphon.membership.messages import PROTOCOL_VERSION, Hello
from antiphon.simulator.cluster.clock import VirtualClock
from antiphon.simulator.cluster.disk import SimulatedDisk


def disk(is_kept: bool = True) -> SimulatedDisk:
    return SimulatedDisk(VirtualClock(), is_kept, True, 0)


def hello(instance: str, address: str, directory: str) -> Hello:
    return Hello(PROTOCOL_VERSION, "antiphon", instance, address, identifier=1, incarnation=1, directory=directory)


class OpenConnection:
    """A connection of a life that has said where it lives."""

    certified_name = ""
    bytes_received = 0

    def __init__(self, instance: str, address: str) -> None:
        self.instance = instance
        self.address = address

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def expel(self, reason: str) -> None: ...


def test_a_directory_has_the_name_of_its_first_life() -> None:
    data = disk()
    assert directory_name(data, "first") == directory_name(data, "second") == "first"
    assert directory_name(disk(is_kept=False), "first") == ""


@pytest.mark.parametrize(("cluster", "fabric"), [("two", "cube"), ("one", "tree")])
def test_a_directory_is_used_for_one_cluster_with_one_fabric(cluster: str, fabric: str) -> None:
    data = disk()
    assert foreign_directory(data, "one", "cube") == foreign_directory(data, "one", "cube") == ""
    refusal = foreign_directory(data, cluster, fabric)
    assert refusal.startswith("the data directory belongs to the cluster 'one' with fabric cube")
    assert refusal.endswith("start it with its own data directory, or with an empty one")


def test_a_copy_is_told_so_while_the_other_is_connected() -> None:
    directories = Directories("here:1", "own")
    directories.greeted(hello("first", "there:1", "shared"))
    connected = [OpenConnection("first", "there:1")]
    assert "copy; stop one of them" in directories.copied(hello("second", "there:2", "shared"), connected)
    assert "the node at here:1 runs" in directories.copied(hello("second", "there:2", "own"), [])
    # It was restarted, or the other is gone, or it has no directory.
    assert directories.copied(hello("second", "there:1", "shared"), connected) == ""
    assert directories.copied(hello("second", "there:2", "shared"), []) == ""
    assert directories.copied(hello("second", "there:2", ""), connected) == ""


def test_a_broker_does_not_return_with_the_directory_of_another_tree() -> None:
    directories = Directories("here:1", "own")
    directories.greeted(hello("known", "there:1", "ours"))
    assert "broker 1 of this tree has another data directory" in directories.foreign(
        hello("stranger", "there:1", "theirs"), "known"
    )
    assert directories.foreign(hello("again", "there:1", "ours"), "known") == ""
    assert directories.foreign(hello("stranger", "there:1", "theirs"), "unheard") == ""
