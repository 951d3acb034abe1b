"""Tells clients which of their batches are safe: all members of the topic are known to have them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from antiphon.sessions.client_messages import SafeUpTo
from antiphon.sessions.host import ConnectedClient, NodeHost, SessionTopic
from antiphon.sessions.replay_buffer import ShownBatch
from antiphon.sessions.resume import LOOK_US

B = TypeVar("B", bound=ShownBatch)


class SafetyReports(Generic[B]):
    """The batches of all clients of one node that are not safe."""

    def __init__(self, host: NodeHost[B], clients: Mapping[int, ConnectedClient]) -> None:
        self._host = host
        self._clients = clients
        # By topic, what was handed to the process for clients: number, client, and the client's own number.
        self._unsafe: dict[SessionTopic[B], deque[tuple[int, int, int]]] = {}
        self._is_polling = False

    def handed_in(self, topic: SessionTopic[B], number: int, client: int, serial: int) -> None:
        """A client's batch has become the process's publication of this number."""
        self._unsafe.setdefault(topic, deque()).append((number, client, serial))
        self._poll_later()

    def _poll_later(self) -> None:
        if not self._is_polling:
            self._is_polling = True
            self._host.after(LOOK_US, self._poll)

    def _poll(self) -> None:
        """Tell clients what has become safe since the last time."""
        self._is_polling = False
        for topic, unsafe in list(self._unsafe.items()):
            first = self._host.first_unsettled(topic.number)
            safe: dict[int, int] = {}
            while unsafe and unsafe[0][0] < first:
                _, client, serial = unsafe.popleft()
                safe[client] = serial
            for client, serial in safe.items():
                connected = self._clients.get(client)
                if connected is not None:
                    connected.send(SafeUpTo(topic.name, serial))
            if not unsafe:
                del self._unsafe[topic]
        if self._unsafe:
            self._poll_later()
