"""VCube-PS, broken on purpose: what a campaign must find.

Each variant wraps an honest process and its environment and lies in one place. None of them is in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from librt.vecs import append, vec
from mypy_extensions import i64

from antiphon.fabrics.cube.messages import Acknowledgement, Refusal, SurveyResponse, Synchronise, Unsubscribe
from antiphon.fabrics.cube.process import CubeProcess
from antiphon.fabrics.cube.topic import MEMBER, OUTSIDE, SYNCHRONISING, CubeTopic
from antiphon.fabrics.cube.total_order.messages import GrantRelease, GrantRequest, GrantResponse, KeyLockResponse
from antiphon.fabrics.protocol import Builder, Setting, WaitingCounts
from antiphon.kernel import UNSPECIFIED, Environment, Process, ProtocolError, ProtocolMessage, RandomStream
from antiphon.kernel.message import SOURCE_MASK, Publication
from antiphon.orders.order import merged_frontiers
from antiphon.simulator.scenario.protocols import OWN


class Broken(Environment):
    """Stands between an honest process and its host, on both sides. Honest itself; subclasses are not."""

    def __init__(self, outer: Environment, build: Builder) -> None:
        super().__init__(outer.identifier)
        self.outer = outer
        inner = build(self)
        assert isinstance(inner, CubeProcess)
        self.inner = inner

    # What the process does.

    def now(self) -> int:
        return self.outer.now()

    def send(self, destination: int, message: ProtocolMessage) -> None:
        self.outer.send(destination, message)

    def deliver(self, publication: Publication) -> None:
        self.outer.deliver(publication)

    def unwanted(self, message: ProtocolMessage) -> None:
        self.outer.unwanted(message)

    def subscribed(self, topic: int) -> None:
        self.outer.subscribed(topic)

    def unsubscribed(self, topic: int) -> None:
        self.outer.unsubscribed(topic)

    def random(self) -> RandomStream:
        return self.outer.random()

    # What the host does.

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        self.inner.receive(sender, message)

    def publish(self, payload: bytes, topic: int, order: int) -> int:
        return self.inner.publish(payload, topic, order)

    def publish_about(self, keys: list[int], payload: bytes, topic: int, order: int) -> int:
        return self.inner.publish_about(keys, payload, topic, order)

    def state_of(self, topic: int) -> int:
        known: CubeTopic | None = self.inner.topic(topic)
        return OUTSIDE if known is None else known.state


class Face(Process):
    """What the host sees of a broken node."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(broken.outer)
        self.broken = broken

    def publish(self, payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        return self.broken.publish(payload, topic, order)

    def publish_about(self, keys: list[int], payload: bytes, topic: int = 0, order: int = UNSPECIFIED) -> int:
        return self.broken.publish_about(keys, payload, topic, order)

    def subscribe(self, topic: int) -> None:
        self.broken.inner.subscribe(topic)

    def unsubscribe(self, topic: int) -> None:
        self.broken.inner.unsubscribe(topic)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        self.broken.receive(sender, message)

    def unfinished(self) -> int:
        return self.broken.inner.unfinished()


class LosesRefusals(Broken):
    """The first copy that a node should return is lost."""

    has_lost = False

    def send(self, destination: int, message: ProtocolMessage) -> None:
        if isinstance(message, Refusal) and not self.has_lost:
            self.has_lost = True
        else:
            super().send(destination, message)


class AnswersForItselfOnly(Broken):
    """To a newcomer's question a node answers with its own last number instead of all that it counts as past."""

    def __init__(self, outer: Environment, build: Builder) -> None:
        self.gathered: dict[tuple[int, int], vec[i64]] = {}
        super().__init__(outer, build)

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        key = (message.source, message.sequence)
        if isinstance(message, Synchronise):
            self.gathered[key] = vec[i64]()
        elif isinstance(message, SurveyResponse) and key in self.gathered:
            self.gathered[key] = merged_frontiers(self.gathered[key], message.entries)
        super().receive(sender, message)

    def send(self, destination: int, message: ProtocolMessage) -> None:
        key = (message.source, message.sequence)
        if isinstance(message, SurveyResponse) and key in self.gathered:
            own = vec[i64]()
            for entry in message.entries:
                if entry & SOURCE_MASK == self.identifier:
                    own = append(own, entry)
            entries = merged_frontiers(self.gathered.pop(key), own)
            message = SurveyResponse(
                message.source, message.sequence, message.topic, entries, message.announced, message.is_past
            )
        super().send(destination, message)


class ForgetsWhatCameEarly(Broken):
    """What arrives while the subscription is being synchronised is handed on and acknowledged, but not kept."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        super().receive(sender, message)
        topic = self.inner.topic(message.topic)
        if topic is not None and topic.state == SYNCHRONISING:
            topic.early.clear()


class KeepsClusters(Broken):
    """Who is handed a cluster and cannot serve it says that it has, as the printed protocol does."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if isinstance(message, Publication) and self.state_of(message.topic) < SYNCHRONISING:
            self.send(sender, Acknowledgement(message.source, message.sequence, message.topic))
        else:
            super().receive(sender, message)


class DropsQueuedPublications(Broken):
    """What is published before the subscription has taken effect is forgotten."""

    def publish(self, payload: bytes, topic: int, order: int) -> int:
        if self.state_of(topic) != MEMBER:
            return 1
        return super().publish(payload, topic, order)


class DeliversToOutsiders(Broken):
    """Who has left and returns a copy looks into it first."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if isinstance(message, Publication) and self.state_of(message.topic) == OUTSIDE:
            self.deliver(message)
        super().receive(sender, message)


class DeliversTwice(Broken):
    """The fifth publication of a source is delivered again."""

    def deliver(self, publication: Publication) -> None:
        super().deliver(publication)
        if publication.sequence == 5:
            super().deliver(publication)


class RefusesWithoutACounter(Broken):
    """A refusal does not say which membership it speaks of, so that the sender goes on believing in it."""

    def send(self, destination: int, message: ProtocolMessage) -> None:
        if isinstance(message, Refusal):
            message = Refusal(message.packet, -1, message.was_leaf)
        super().send(destination, message)


class StumblesOverLeavers(Broken):
    """An ``Unsubscribe`` from an outsider is thought to be impossible."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if isinstance(message, Unsubscribe) and self.state_of(message.topic) == OUTSIDE:
            raise ProtocolError(f"node {sender} left a topic that nobody is in")
        super().receive(sender, message)


class ClosesWithoutNumbers(Broken):
    """Who closes some keys does not say what it has published, so that total publications do not wait for it."""

    def send(self, destination: int, message: ProtocolMessage) -> None:
        if isinstance(message, KeyLockResponse):
            message = KeyLockResponse(message.source, message.sequence, message.topic, message.place, vec[i64]())
        super().send(destination, message)


class GrantsAtOnce(Broken):
    """The lock manager lets everybody begin who asks."""

    def receive(self, sender: int, message: ProtocolMessage) -> None:
        if isinstance(message, GrantRequest):
            self.place = getattr(self, "place", 0) + 1
            self.send(message.source, GrantResponse(message.source, message.sequence, message.topic, 1, self.place, 0))
        elif not isinstance(message, GrantRelease):
            super().receive(sender, message)


Variant = Callable[[Environment, Builder], Broken]


def break_vcube_ps(monkeypatch: pytest.MonkeyPatch, variant: Variant, order: str | None = None) -> None:
    """Let scenarios run a broken variant of VCube-PS, or the honest one with another order than they ask for."""
    honest = OWN["vcube-ps"]

    def prepare(setting: Setting) -> Builder:
        build = honest.prepare(setting if order is None else replace(setting, order=order))
        return lambda environment: Face(variant(environment, build))

    def orders_of(process: Process) -> Sequence[WaitingCounts]:
        assert isinstance(process, Face)
        return honest.orders_of(process.broken.inner)

    monkeypatch.setitem(OWN, "vcube-ps", replace(honest, prepare=prepare, orders_of=orders_of))
