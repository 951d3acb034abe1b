"""The room of the tour."""

from __future__ import annotations

from antiphon.trace.store import SCHEMA
from antiphon_lab.experiments.vcube.causal_room import Wait, longest_wait, run_room


def test_everybody_hears_everything_in_causal_order() -> None:
    room = run_room(32, 1)
    assert room.findings.clean
    assert room.result.deliveries == room.findings.deliveries == 32 * 32
    assert room.result.held_total > 0
    wait = room.longest_wait
    assert wait is not None
    assert wait.delivered > wait.received
    assert wait.after not in (wait.source, wait.node)


def rows(*events: tuple[int, str, int, int, str]) -> list[dict[str, object]]:
    return [
        {"time": time, "event": event, "node": node, "source": source, "message": message}
        for time, event, node, source, message in events
    ]


def table(*events: tuple[int, str, int, int, str]) -> object:
    import pyarrow as pa

    found = rows(*events)
    columns = {name: pa.array([row[name] for row in found], SCHEMA.field(name).type) for name in found[0]}
    return pa.table(columns)


def test_the_longest_wait_is_from_reception_to_delivery_and_ends_with_an_arrival() -> None:
    trace = table(
        (0, "deliver", 3, 3, "Ordered"),
        (5, "receive", 1, 7, "Ordered"),
        (6, "receive", 1, 7, "Acknowledgement"),
        (9, "receive", 1, 8, "Ordered"),
        (20, "receive", 1, 2, "Ordered"),
        (20, "deliver", 1, 2, "Ordered"),
        (20, "deliver", 1, 8, "Ordered"),
        (20, "deliver", 1, 7, "Ordered"),
    )
    assert longest_wait(trace) == Wait(node=1, source=7, received=5, delivered=20, after=2)


def test_nothing_waits_where_nothing_overtakes() -> None:
    assert longest_wait(table((5, "receive", 1, 7, "Ordered"), (5, "deliver", 1, 7, "Ordered"))) is None
