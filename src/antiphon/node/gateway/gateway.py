"""The gateway of a node: which clients are let in, and what happens when their rights change or they stand still."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.api.topic_names import client_number
from antiphon.kernel.errors import ProtocolError
from antiphon.membership.heartbeats import FailureDetector
from antiphon.membership.messages import Hello
from antiphon.node.gateway.client_session import ClientServices, ClientSession
from antiphon.runtime.errors import QuotaError
from antiphon.transport.framing import FrameWriter
from antiphon.transport.incoming import FrameClient, IncomingConnection
from antiphon.transport.tls import CertifiedIdentity, instance_of

RIGHTS_SECONDS: Final = 1.0
"""How often a node looks whether the file of rights has changed."""


class Gateway:
    """The clients of one node: who is let in, and what they may do."""

    def __init__(self, services: ClientServices, has_tls: bool, lost_seconds: float) -> None:
        self._services = services
        self._rights = services.rights
        self._clients = services.clients
        self._has_tls = has_tls
        self._looking: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._detector = FailureDetector(lost_seconds, self._loop.time())
        self._listening: asyncio.TimerHandle | None = None
        services.backlogs.when_waiting = self._listen_for_clients

    def client_connected(
        self, writer: FrameWriter, hello: Hello, identity: CertifiedIdentity | None, connection: IncomingConnection
    ) -> FrameClient:
        """A client has opened a connection, at a node that is in its cluster."""
        count = len(self._clients)
        if count >= self._services.limits.maximum_clients:
            raise ProtocolError(f"this node has {count} clients, as many as it may; connect to another one")
        holder = self._rights.holder(identity, hello.token, self._has_tls)
        account = self._services.ledger.account(holder.name, holder.rights.quotas)
        # Nobody hands in batches under the number of another client.
        instance = instance_of(holder.name, hello.instance) if holder.name else hello.instance
        number = client_number(instance)
        former = self._services.sessions.client(number)
        if isinstance(former, ClientSession):
            # Perhaps its connection has ended and the node has not noticed: a process that runs answers.
            former.prove_life()
            raise ProtocolError(
                "this session is in use by another connection; if it was yours, connect again in some seconds, "
                "otherwise connect as a new client"
            )
        try:
            account.connect()
        except QuotaError as error:
            raise ProtocolError(str(error)) from error
        connection.tenant = holder.name
        connection.share = account.turns
        return ClientSession(self._services, writer, number, holder, connection, account)

    def poll_rights(self) -> None:
        """See from time to time whether the rights have changed."""
        if self._rights.poll():
            self._rights_changed()
        self._looking = asyncio.get_running_loop().call_later(RIGHTS_SECONDS, self.poll_rights)

    def read_rights_again(self) -> None:
        """Somebody says that the rights have changed."""
        if self._rights.read_again():
            self._rights_changed()

    def _rights_changed(self) -> None:
        for client in tuple(self._clients):
            client.rights_changed()

    def _listen_for_clients(self) -> None:
        """Exchange heartbeats with clients for as long as one of them waits, or is waited for."""
        if self._listening is None:
            self._listening = self._loop.call_later(self._detector.look_seconds, self._poll_clients)

    def _poll_clients(self) -> None:
        self._listening = None
        backlogs = self._services.backlogs
        for client in backlogs.poll(self._loop.time(), self._detector):
            client.give_up()
        self._services.sender.settle()
        if backlogs.are_waiting():
            self._listen_for_clients()

    def close(self) -> None:
        """Look at nothing any more."""
        self._services.backlogs.when_waiting = bool
        for timer in (self._looking, self._listening):
            if timer is not None:
                timer.cancel()
