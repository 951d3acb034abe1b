"""Maelstrom's protocol, by the examples of its documentation (doc/protocol.md and doc/workloads.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.maelstrom.host import HostOptions, MaelstromHost
from antiphon.maelstrom.protocol import read_line
from antiphon.maelstrom.services import service_for
from tests.maelstrom.world import World

SECOND = 1_000_000


def say(host: MaelstromHost, written: list[bytes], **body: Any) -> dict[str, Any]:
    """What a node answers at once to one request."""
    host.take(msgspec.json.encode({"src": "c1", "dest": "n3", "body": body}))
    answer: dict[str, Any] = msgspec.json.decode(written.pop())
    assert (answer["src"], answer["dest"]) == (host.name, "c1")
    assert isinstance(answer["body"], dict)
    return answer["body"]


def alone(workload: str) -> tuple[MaelstromHost, list[bytes]]:
    """A node that is a whole system."""
    written: list[bytes] = []
    host = MaelstromHost(service_for(workload), written.append, lambda: 0, HostOptions())
    assert say(host, written, type="init", msg_id=1, node_id="n3", node_ids=["n3"]) == {
        "type": "init_ok",
        "in_reply_to": 1,
    }
    return host, written


def test_before_init_a_node_is_temporarily_unavailable() -> None:
    written: list[bytes] = []
    host = MaelstromHost(service_for("broadcast"), written.append, lambda: 0, HostOptions())
    assert say(host, written, type="read", msg_id=7) == {
        "type": "error",
        "code": 11,
        "text": "this node has no identity yet; send init",
        "in_reply_to": 7,
    }


def test_broadcast_topology_and_read() -> None:
    host, written = alone("broadcast")
    topology = {"n1": ["n2", "n3"], "n2": ["n1"], "n3": ["n1"]}
    assert say(host, written, type="topology", msg_id=1, topology=topology)["type"] == "topology_ok"
    assert say(host, written, type="broadcast", msg_id=2, message=1000) == {"type": "broadcast_ok", "in_reply_to": 2}
    assert say(host, written, type="broadcast", msg_id=3, message={"b": [1], "a": None})["type"] == "broadcast_ok"
    assert say(host, written, type="broadcast", msg_id=4, message={"a": None, "b": [1]})["type"] == "broadcast_ok"
    assert say(host, written, type="read", msg_id=5) == {
        "type": "read_ok",
        "messages": [1000, {"a": None, "b": [1]}],
        "in_reply_to": 5,
    }


def test_a_grow_only_set_shows_its_elements_as_value() -> None:
    host, written = alone("g-set")
    assert say(host, written, type="add", msg_id=1, element="x") == {"type": "add_ok", "in_reply_to": 1}
    assert say(host, written, type="read", msg_id=2) == {"type": "read_ok", "value": ["x"], "in_reply_to": 2}


def test_logs_give_offsets_and_show_contiguous_messages_from_where_they_are_asked() -> None:
    host, written = alone("kafka")
    sent = [say(host, written, type="send", msg_id=n, key="a", msg=value) for n, value in enumerate([7, 8, 9, 5, 15])]
    assert [(answer["type"], answer["offset"]) for answer in sent] == [("send_ok", offset) for offset in range(5)]
    polled = say(host, written, type="poll", msg_id=9, offsets={"a": 2, "b": 0})
    assert polled == {"type": "poll_ok", "msgs": {"a": [[2, 9], [3, 5], [4, 15]]}, "in_reply_to": 9}
    assert say(host, written, type="commit_offsets", msg_id=10, offsets={"a": 2}) == {
        "type": "commit_offsets_ok",
        "in_reply_to": 10,
    }
    assert say(host, written, type="commit_offsets", msg_id=11, offsets={"a": 1})["type"] == "commit_offsets_ok"
    assert say(host, written, type="list_committed_offsets", msg_id=12, keys=["a", "b"]) == {
        "type": "list_committed_offsets_ok",
        "offsets": {"a": 2},
        "in_reply_to": 12,
    }


@pytest.mark.parametrize(
    ("workload", "body", "code"),
    [
        ("broadcast", {"type": "txn", "txn": []}, 10),
        ("kafka", {"type": "broadcast", "message": 1}, 10),
        ("broadcast", {"type": "broadcast"}, 12),
        ("g-set", {"type": "add"}, 12),
        ("kafka", {"type": "send", "key": 5, "msg": 1}, 12),
        ("kafka", {"type": "poll", "offsets": {"a": -1}}, 12),
        ("kafka", {"type": "commit_offsets", "offsets": {"a": "1"}}, 12),
        ("broadcast", {"type": "init", "node_id": "n3", "node_ids": ["n3"]}, 12),
    ],
)
def test_what_cannot_be_done_is_answered_with_an_error_that_says_it_never_happens(
    workload: str, body: dict[str, Any], code: int
) -> None:
    host, written = alone(workload)
    answer = say(host, written, **body, msg_id=4)
    assert (answer["type"], answer["code"], answer["in_reply_to"]) == ("error", code, 4)
    assert answer["text"]


def test_lines_that_are_no_messages_are_refused() -> None:
    for line in (b"hello", b"[]", b'{"src": "c1", "body": {}}'):
        with pytest.raises(PeerError, match="not a message of Maelstrom"):
            read_line(line)
    host, _ = alone("broadcast")
    with pytest.raises(PeerError, match="is not an object"):
        host.take(b'{"src": "c1", "dest": "n3", "body": [1]}')
    with pytest.raises(UsageError, match="there is no workload 'lin-kv'"):
        service_for("lin-kv")


def test_what_a_node_is_told_all_nodes_show() -> None:
    world = World("broadcast", 5)
    world.add(0, "n4", 17)
    world.run_until(SECOND)
    assert [world.read(0, name) for name in world.names] == [[17]] * 5


def test_logs_have_one_order_at_all_nodes() -> None:
    world = World("kafka", 5)
    sent = [world.ask(world.names[n % 5], type="send", key=f"k{n % 2}", msg=n) for n in range(40)]
    world.run_until(20 * SECOND)
    offsets = [world.answer(number)["offset"] for number in sent]
    for parity in range(2):
        assert sorted(offsets[parity::2]) == list(range(20))
    logs = [world.answer(world.ask(name, type="poll", offsets={"k0": 0, "k1": 0}))["msgs"] for name in world.names]
    assert all(log == logs[0] for log in logs)
    assert [logs[0][f"k{n % 2}"][offset][1] for n, offset in enumerate(offsets)] == list(range(40))
    # More than one node was asked at once, so the order of requests is not that of the log.
    assert offsets[::2] != sorted(offsets[::2])


def test_without_a_majority_nothing_is_appended_and_clients_are_told() -> None:
    world = World("kafka", 5)
    everybody = frozenset(world.names)
    world.cut(
        {name: everybody - {name} for name in ("n0", "n1")} | dict.fromkeys(("n2", "n3", "n4"), frozenset({"n0", "n1"}))
    )
    world.run_until(20 * SECOND)
    refused = world.answer(world.ask("n0", type="send", key="k", msg=1))
    assert (refused["type"], refused["code"]) == ("error", 11)
    taken = world.ask("n3", type="send", key="k", msg=2)
    world.run_until(25 * SECOND)
    assert world.answer(taken) == {"type": "send_ok", "offset": 0}
    world.cut({})
    world.run_until(50 * SECOND)
    assert world.answer(world.ask("n0", type="poll", offsets={"k": 0}))["msgs"] == {"k": [[0, 2]]}
