"""The spaces of a live node: which topics have causal order across them, and where their headers stand in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.api.batch_codec import space_header, with_space_header
from antiphon.api.topic_names import matches
from antiphon.api.topic_state import LiveTopicTable
from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import ORDER_NAMES, TOTAL
from antiphon.kernel.process import Environment, Process
from antiphon.node.settings import Settings
from antiphon.spaces.header import NOTHING, HeaderPlace
from antiphon.spaces.process import NO_SPACE, REFUSED_TOTAL, SpaceProcess

ACKNOWLEDGE_TICKS: Final = 200_000
"""For how long a node collects what it tells others about spaces, in microseconds."""


class BatchPlace(HeaderPlace):
    """Headers stand in a batch before its columns, so that whoever reads only these passes over them."""

    def embed(self, payload: bytes, header: bytes) -> bytes:
        return with_space_header(payload, header)

    def extract(self, payload: bytes) -> bytes:
        # A node without this setting has published it.
        return space_header(payload) or NOTHING


class SpacesByNumber:
    """Finds the space of a topic by the topic's number, as soon as this node knows its name."""

    def __init__(self, spaces: dict[str, list[str]], topics: LiveTopicTable) -> None:
        self._patterns = [(number, pattern) for number, name in enumerate(sorted(spaces)) for pattern in spaces[name]]
        self._topics = topics
        self._found: dict[int, int] = {}

    def __call__(self, topic: int) -> int:
        found = self._found.get(topic)
        if found is None:
            known = self._topics.by_number.get(topic)
            if known is None:
                return NO_SPACE
            numbers = [number for number, pattern in self._patterns if matches(pattern, known.name)]
            found = self._found[topic] = numbers[0] if numbers else NO_SPACE
        return found


def check_total(spaces: dict[str, list[str]], topic: str, order: str) -> None:
    """Refuse total order on the topics of spaces."""
    if order == ORDER_NAMES[TOTAL] and any(matches(pattern, topic) for each in spaces.values() for pattern in each):
        raise UsageError(f"{topic}: {REFUSED_TOTAL}")


def new_process_with_spaces(
    settings: Settings, topics: LiveTopicTable, environment: Environment, build: Callable[[Environment], Process]
) -> Process:
    """The process that ``build`` makes, under the spaces of the settings; without spaces as it is."""
    if not settings.spaces:
        return build(environment)
    return SpaceProcess(
        environment,
        build,
        SpacesByNumber(settings.spaces, topics),
        BatchPlace(),
        ACKNOWLEDGE_TICKS,
        int(settings.forget_seconds * 1_000_000),
        settings.space_names,
    )
