"""The contract: what a process and an environment are before anybody fills them in."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

import antiphon.kernel
from antiphon.kernel import (
    AntiphonError,
    Environment,
    PeerError,
    Process,
    ProtocolError,
    ProtocolMessage,
    Publication,
    ScenarioError,
    UsageError,
)
from antiphon.simulator.engine.actions import PublishAction
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.trace.store import MemoryTrace
from tests.support import Notebook, lines_of, text


def rumour() -> type[Process]:
    """The protocol printed in the documentation of the kernel, as it is printed there."""
    documentation = antiphon.kernel.__doc__
    assert documentation is not None
    _, code = documentation.split("::\n\n")
    namespace: dict[str, Any] = dict(vars(antiphon.kernel))
    exec(dedent(code), namespace)
    protocol = namespace["Rumour"]
    assert isinstance(protocol, type)
    assert issubclass(protocol, Process)
    return protocol


def test_the_protocol_in_the_documentation_runs_as_it_is_printed() -> None:
    """Ten nodes in a row, each hop one transmission, ten ticks of travel and one of processing."""
    trace = MemoryTrace()
    engine = Engine(10, NetworkModel(ConstantDelay(10)), rumour(), recorder=trace.recorder)
    engine.at(3, PublishAction(0, b"psst"))
    assert engine.run() == "finished"
    delivered = "\n".join(f"{3 + 12 * hop} deliver {hop} Publication(0,1) [{12 * hop}]" for hop in range(10))
    assert lines_of(trace.table(), ["deliver"]) == text(delivered)


def test_a_process_knows_its_environment_and_its_identifier() -> None:
    notebook = Notebook(5)
    process = Process(notebook)
    assert process.environment is notebook
    assert process.me == notebook.identifier == 5


def test_what_a_process_does_not_expect_is_an_error() -> None:
    process = Process(Notebook(5))
    with pytest.raises(NotImplementedError):
        process.publish(b"")
    with pytest.raises(NotImplementedError):
        process.receive(1, ProtocolMessage(1, 1))
    with pytest.raises(NotImplementedError):
        process.state()


def test_a_fabric_without_topics_says_so() -> None:
    process = Process(Notebook(5))
    with pytest.raises(UsageError, match="knows no topics: everybody gets everything; publish without subscribing"):
        process.subscribe(1)
    with pytest.raises(UsageError, match="knows no topics: everybody gets everything, and nobody can unsubscribe"):
        process.unsubscribe(1)


def test_starting_expiring_and_leaving_do_nothing_unless_overridden() -> None:
    notebook = Notebook(5)
    process = Process(notebook)
    process.start()
    process.expire(1)
    process.leave()
    assert (notebook.sent, notebook.delivered) == ([], [])


@pytest.mark.parametrize(
    "call",
    [
        lambda environment: environment.now(),
        lambda environment: environment.send(1, ProtocolMessage(0, 1)),
        lambda environment: environment.deliver(Publication(0, 1, 0, b"")),
        lambda environment: environment.set_timer(1, 1),
        lambda environment: environment.cancel_timer(1),
        lambda environment: environment.random(),
    ],
)
def test_an_environment_is_implemented_by_hosts(call: Callable[[Environment], object]) -> None:
    with pytest.raises(NotImplementedError):
        call(Environment(0))


def test_errors_have_two_sides() -> None:
    """Everything raised on purpose is either the caller's fault or somebody else's, and never both."""
    assert issubclass(ScenarioError, UsageError)
    assert issubclass(ProtocolError, PeerError)
    for family in (UsageError, PeerError):
        assert issubclass(family, AntiphonError)
    assert not issubclass(UsageError, PeerError)
    assert not issubclass(PeerError, UsageError)
