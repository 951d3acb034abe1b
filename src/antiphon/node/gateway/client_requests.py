"""Answers what a client asks about its node: its status, its log, and what an operator may change."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

from antiphon.kernel.errors import ProtocolError
from antiphon.membership.membership import Membership
from antiphon.membership.messages import Control
from antiphon.node.acl import Holder
from antiphon.node.status import NodeStatus
from antiphon.runtime.clocks import monotonic_us
from antiphon.runtime.tasks import Tasks
from antiphon.sessions.client_messages import (
    DismissRequest,
    DismissResponse,
    LogsRequest,
    MarksRequest,
    RangeRequest,
    StatusRequest,
    StatusResponse,
)
from antiphon.storage.log_server import LogServer

STATUS_REQUESTS_AT_MOST: Final = 64
"""How many status requests of one client may wait for their responses."""

LOG_REQUESTS_AT_MOST: Final = 16
"""How many requests of one client about the log may wait for their responses."""

LogRequest = LogsRequest | RangeRequest | MarksRequest


class RequestServices(NamedTuple):
    """The parts of a node that know the answers."""

    status: NodeStatus
    log_server: LogServer
    cluster: Membership


class AskingSession(Protocol):
    """The session of the client that asks."""

    client: int
    holder: Holder
    may_write: asyncio.Event

    def send(self, control: Control) -> None:
        """Send something to the client when the node settles."""

    def settle(self) -> None:
        """Write what was sent."""


class ClientRequests:
    """The requests of one client."""

    def __init__(self, session: AskingSession, services: RequestServices, tasks: Tasks) -> None:
        self._session = session
        self._services = services
        self._tasks = tasks
        self._status_requests: list[StatusRequest] = []
        self._log_requests = 0

    def on_message(self, message: StatusRequest | DismissRequest | LogRequest) -> None:
        """Answer a request. A client that asks faster than it is answered is refused."""
        if isinstance(message, DismissRequest):
            self._dismiss(message)
        elif isinstance(message, StatusRequest):
            if len(self._status_requests) >= STATUS_REQUESTS_AT_MOST:
                raise ProtocolError(
                    f"a client asked {STATUS_REQUESTS_AT_MOST} times for the status and waited for no answer"
                )
            if not self._status_requests:
                asyncio.get_running_loop().call_soon(self._tell_status)
            self._status_requests.append(message)
        else:
            if self._log_requests >= LOG_REQUESTS_AT_MOST:
                raise ProtocolError(
                    f"a client asked {LOG_REQUESTS_AT_MOST} times about the log and waited for no answer"
                )
            self._log_requests += 1
            self._tasks.spawn(self._read_log(message))

    def _tell_status(self) -> None:
        requests, self._status_requests = self._status_requests, []
        status, holder = self._services.status, self._session.holder
        for message in requests:
            denied = ""
            if message.wants_all and not holder.rights.admin:
                denied = f"client {holder.name!r} may not look into nodes; have admin = true added to its rights"
            figures = status.figures() if message.wants_all and not denied else status.summary()
            about = {**figures, "author": self._session.client}
            self._session.send(StatusResponse(message.number, about, monotonic_us(), denied))
        self._session.settle()

    def _dismiss(self, message: DismissRequest) -> None:
        """An operator says that brokers are gone for good."""
        holder = self._session.holder
        if not holder.rights.admin:
            denied = f"client {holder.name!r} may not change the tree; have admin = true added to its rights"
            self._session.send(DismissResponse(message.number, denied, True))
            return
        self._session.send(DismissResponse(message.number, self._services.cluster.dismiss(message.brokers)))
        self._session.settle()

    async def _read_log(self, message: LogRequest) -> None:
        session, server = self._session, self._services.log_server
        try:
            # A client that does not read responses gets no more of them.
            await session.may_write.wait()
            if isinstance(message, LogsRequest):
                session.send(await server.logs(session.holder, message))
            elif isinstance(message, MarksRequest):
                session.send(await server.marks(session.holder, message))
            else:
                session.send(await server.range(session.holder, message))
        finally:
            self._log_requests -= 1
        session.settle()
