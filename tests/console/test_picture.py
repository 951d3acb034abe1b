"""What the page says of a cluster follows from what its nodes say."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.console.live.picture import ClusterPicture, rate, tree_of


def status(node: int, others: list[int], delivered: int = 0, **more: Any) -> dict[str, Any]:
    topic = {
        "delivered_messages": delivered,
        "delivered_bytes": 10 * delivered,
        "published": 0,
        "publisher_waits": 0,
        "lag": node,
        "blocked_by": [],
    }
    peers = [{"node": other, "address": f"127.0.0.1:{7400 + other}"} for other in others]
    return {"node": node, "address": f"127.0.0.1:{7400 + node}", "peers": peers, "topics": {"room": topic}, **more}


def texts(picture: dict[str, Any]) -> list[str]:
    return [event["text"] for event in picture["events"]]


def test_rates_are_those_since_the_last_picture() -> None:
    pictures = ClusterPicture()
    first = pictures.taken(0, [status(0, [1], 100), status(1, [0], 100)], 10.0, 0.0)
    assert first["topics"][0]["delivered"] == 0
    second = pictures.taken(0, [status(0, [1], 300), status(1, [0], 200)], 12.0, 2.0)
    (topic,) = second["topics"]
    assert (topic["delivered"], topic["bytes"], topic["lag"]) == (150, 1500, 1)
    # Node 1 has begun again, and counts from 0.
    third = pictures.taken(0, [status(0, [1], 300), status(1, [0], 5)], 13.0, 3.0)
    assert third["topics"][0]["delivered"] == 0
    assert rate(5, 3, 1.0) == 0


def test_nodes_that_come_and_go_are_told_once() -> None:
    pictures = ClusterPicture()
    assert texts(pictures.taken(0, [status(0, [1, 2]), status(1, [0, 2])], 1.0, 1.0)) == []
    lost = pictures.taken(0, [status(0, [1]), status(1, [0])], 2.0, 2.0)
    assert texts(lost) == ["node 2 is lost, or has left"]
    assert [(node["node"], node["is_there"], node["answers"]) for node in lost["nodes"]] == [
        (0, True, True),
        (1, True, True),
        (2, False, False),
    ]
    assert len(texts(pictures.taken(0, [status(0, [1])], 3.0, 3.0))) == 1
    back = pictures.taken(0, [status(0, [1, 2, 3])], 4.0, 4.0)
    assert texts(back)[:2] == ["node 3 has come, at 127.0.0.1:7403", "node 2 is back, at 127.0.0.1:7402"]


def test_troubles_and_waiting_publishers_are_told() -> None:
    pictures = ClusterPicture()
    sick = status(0, [], troubles=["disk: it is full"])
    sick["topics"]["room"]["blocked_by"] = ["the disk, which has not taken 9 bytes yet"]
    picture = pictures.taken(0, [sick], 1.0, 1.0)
    assert texts(picture) == ["node 0: disk: it is full"]
    assert picture["topics"][0]["blocked_by"] == ["node 0 waits for the disk, which has not taken 9 bytes yet"]


def test_consumers_that_are_furthest_behind_come_first() -> None:
    figures = [{"topic": "room", "consumer": name, "lag": lag} for name, lag in (("a", 2), ("b", 9), ("c", 0))]
    picture = ClusterPicture().taken(0, [status(0, [], consumers=figures)], 1.0, 1.0)
    assert [each["consumer"] for each in picture["consumers"]] == ["b", "a", "c"]


@pytest.mark.parametrize("nodes", [[0], [0, 1, 2, 3, 4], [3, 5, 9, 12, 40], list(range(33))])
def test_a_tree_reaches_every_node_once(nodes: list[int]) -> None:
    for publisher in nodes:
        edges = tree_of(publisher, nodes)
        assert sorted(child for _, child in edges) == [node for node in nodes if node != publisher]
        reached = {publisher}
        for parent, child in edges:
            assert parent in reached
            reached.add(child)
    assert tree_of(77, nodes) == []
