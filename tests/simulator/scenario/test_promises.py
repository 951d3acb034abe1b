"""What is promised to a run, and that a broken promise is found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.audit.verdict import unspoken_holes, wrong_words
from antiphon.fabrics.cube.broadcast import TreeBroadcast
from antiphon.fabrics.protocol import Builder, Setting
from antiphon.kernel import UNSPECIFIED, Environment, Process, ProtocolMessage
from antiphon.orders.fifo import Fifo
from antiphon.orders.order import Order
from antiphon.simulator.scenario import verdict
from antiphon.simulator.scenario.file import parse_scenario
from antiphon.simulator.scenario.protocols import OWN
from antiphon.simulator.scenario.run import Result, run_scenario

ONCE = 'workload = { kind = "once", window = 500 }\n'
RATE = 'workload = { kind = "rate", mean_gap = 30, count = 100 }\n'
JUMBLED = '[network]\ndelay = { law = "normal", mean = 100, deviation = 60 }\n'
ALWAYS = {"duplicates", "validity"}
AT_THE_END = {"completeness", "requests", "stuck"}


def judged(text: str, trace: Path | None = None) -> Result:
    return run_scenario(parse_scenario("nodes = 8\n" + text), trace)


APPLIES = {
    "none": (ONCE + 'order = "none"', ALWAYS | AT_THE_END),
    "fifo": (ONCE + 'order = "fifo"', ALWAYS | AT_THE_END | {"fifo"}),
    "causal": (ONCE, ALWAYS | AT_THE_END | {"fifo", "causal"}),
    "topics": (ONCE + 'order = "none"\nprotocol = "vcube-ps"', ALWAYS | AT_THE_END | {"membership"}),
    "one tree": (ONCE + 'protocol = "single-tree"', ALWAYS | AT_THE_END | {"fifo", "causal"}),
    "loss": (ONCE + 'order = "fifo"\nnetwork = { loss = 0.3 }', ALWAYS | {"fifo"}),
    "doubles": (ONCE + 'order = "none"\nnetwork = { duplication = 0.5 }', ALWAYS | AT_THE_END - {"stuck"}),
    "a partition": (ONCE + '[[fault]]\nat = 9\nkind = "partition"\ngroups = ["0-3"]', ALWAYS | {"fifo", "causal"}),
    "a limit": (ONCE + "limits = { time = 200 }", ALWAYS | {"fifo", "causal", "completeness"}),
    "a pause": (
        ONCE + '[[fault]]\nat = 9\nkind = "pause"\nnode = 5\n[[fault]]\nat = 900\nkind = "resume"\nnode = 5',
        ALWAYS | AT_THE_END | {"fifo", "causal"},
    ),
    "a pause for ever": (ONCE + '[[fault]]\nat = 9\nkind = "pause"\nnode = 5', ALWAYS | {"fifo", "causal"}),
}


@pytest.mark.parametrize(("text", "checks"), APPLIES.values(), ids=APPLIES.keys())
def test_what_is_promised_depends_on_the_scenario(text: str, checks: set[str]) -> None:
    result = judged(text)
    assert result.violations == dict.fromkeys(checks, 0)
    assert result.judgement.startswith("nothing violated; checked: duplicates, validity")


NOT_JUDGED = {
    "counts": (ONCE + 'trace = { level = "counts" }', "the level of the trace is counts"),
    "best effort": (ONCE + 'order = "best-effort"', "best-effort promises nothing"),
    "a crash": (
        ONCE + '[[fault]]\nat = 9\nkind = "crash"\nnode = 5',
        "the protocol defines no promise to nodes that crash, join or leave",
    ),
}


@pytest.mark.parametrize(("text", "reason"), NOT_JUDGED.values(), ids=NOT_JUDGED.keys())
def test_some_runs_cannot_be_judged(text: str, reason: str) -> None:
    result = judged(text)
    assert (result.violations, result.judgement) == (None, f"not judged: {reason}")


@pytest.mark.parametrize(("limit", "value"), [("MAXIMUM_ROWS", 72), ("MAXIMUM_CLOCK_ENTRIES", 127)])
def test_too_much_to_look_at_is_not_judged(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, limit, value + 1)
    assert judged(ONCE).violations is not None
    monkeypatch.setattr(verdict, limit, value)
    result = judged(ONCE)
    assert result.violations is None
    assert result.judgement.startswith("not judged: too large")


@pytest.mark.parametrize("level", ["deliveries", "everything"])
def test_a_trace_in_a_file_makes_no_difference(level: str, tmp_path: Path) -> None:
    text = RATE + f'protocol = "vcube-ps"\ntrace = {{ level = "{level}" }}\n' + JUMBLED
    written = judged(text, tmp_path / "a.parquet")
    assert written.trace_rows is not None
    assert (written.violations, written.judgement) == (judged(text).violations, judged(text).judgement)


# Broken promises.


def pretend(monkeypatch: pytest.MonkeyPatch, build: Callable[[Environment, Setting], Process]) -> None:
    """Let the protocol ``broadcast`` be another one."""

    def prepare(setting: Setting) -> Builder:
        return lambda environment: build(environment, setting)

    def no_orders(process: Process) -> list[Order]:
        return []

    pretender = replace(OWN["broadcast"], prepare=prepare, orders_of=no_orders)
    monkeypatch.setitem(OWN, "broadcast", pretender)


class Wrapped(Process):
    """Passes everything on to a broadcast in fifo order; subclasses are not as honest."""

    def __init__(self, environment: Environment, setting: Setting) -> None:
        super().__init__(environment)
        self.inner = TreeBroadcast(environment, setting.cube, Fifo(environment.identifier))

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        return self.inner.publish(payload, topic)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        self.inner.receive(sender, message)

    def unfinished(self) -> int:
        return self.inner.unfinished()


class Deaf(Wrapped):
    """One node takes no notice of what node 0 publishes, and acknowledges nothing."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if self.me != 7 or message.source != 0:
            super().receive(sender, message)


class Eager(Wrapped):
    """One node publishes twice what it was asked for once."""

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        if self.me == 3:
            super().publish(payload, topic)
        return super().publish(payload, topic)


LIARS: dict[str, tuple[type[Wrapped], str, set[str], str]] = {
    "fifo for causal": (Wrapped, RATE + JUMBLED, {"causal"}, "delivered after something that follows it"),
    "a deaf node": (Deaf, ONCE, {"completeness", "stuck"}, "completeness: 1, such as publication 1 of node 0"),
    "an eager node": (Eager, ONCE, {"requests"}, "requests: 1, such as 8 publications were requested, and 9 started"),
}


@pytest.mark.parametrize(("liar", "text", "broken", "words"), LIARS.values(), ids=LIARS.keys())
def test_a_broken_promise_is_found(
    liar: type[Wrapped], text: str, broken: set[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, liar)
    result = judged(text)
    violations: dict[str, Any] = result.violations or {}
    assert {promise for promise, count in violations.items() if count} == broken
    assert words in result.judgement


def test_a_subscription_that_nobody_asked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OWN["vcube-ps"]

    def prepare(setting: Setting) -> Builder:
        build = honest.prepare(setting)

        def with_an_outsider(environment: Environment) -> Process:
            process = build(environment)
            if environment.identifier == 7:  # the last one: all others are there to be asked
                process.subscribe(1)
            return process

        return with_an_outsider

    monkeypatch.setitem(OWN, "vcube-ps", replace(honest, prepare=prepare))
    result = judged(ONCE + 'protocol = "vcube-ps"\ntopics = { count = 2, members = ["0-7", [2]] }')
    assert result.violations is not None and result.violations["requests"] == 1
    assert result.judgement == (
        "requests: 1, such as node 7 was to be [] on topic 1, one after the other, and was ['subscribed']"
    )


def test_a_loss_is_said_once_and_of_what_is_not_delivered() -> None:
    """docs/guarantees.md, "Epidemic total order", 4: holes are said, in their places, once, and never filled later."""
    delivered = {(0, 0, 5, 1), (0, 0, 5, 4), (1, 2, 5, 1)}
    two_and_three = [(0, 0, 5, 2), (0, 0, 5, 3)]
    assert wrong_words(two_and_three, delivered) == 0
    assert wrong_words([*two_and_three, (0, 0, 5, 3)], delivered) == 1
    assert wrong_words([*two_and_three, (0, 0, 5, 4), (1, 2, 5, 1)], delivered) == 2
    assert unspoken_holes(two_and_three, delivered) == 0
    assert unspoken_holes(two_and_three[1:], delivered) == 1
    assert unspoken_holes([], set()) == 0
