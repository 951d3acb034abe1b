"""The gateway of a node: which clients are let in, and what happens when their rights change."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.api.topic_names import client_number
from antiphon.kernel.errors import ProtocolError
from antiphon.membership.messages import Hello
from antiphon.node.client_session import ClientServices, ClientSession
from antiphon.transport.incoming import FrameClient, IncomingConnection
from antiphon.transport.links import FrameWriter
from antiphon.transport.tls import Identity, instance_of

RIGHTS_SECONDS: Final = 1.0
"""How often a node looks whether the file of rights has changed."""


class Gateway:
    """The clients of one node: who is let in, and what they may do."""

    def __init__(self, services: ClientServices, has_tls: bool) -> None:
        self._services = services
        self._rights = services.rights
        self._clients = services.clients
        self._has_tls = has_tls
        self._looking: asyncio.TimerHandle | None = None

    def client_connected(
        self, writer: FrameWriter, hello: Hello, identity: Identity | None, connection: IncomingConnection
    ) -> FrameClient:
        """A client has opened a connection, at a node that is in its cluster."""
        count = len(self._clients)
        if count >= self._services.limits.maximum_clients:
            raise ProtocolError(f"this node has {count} clients, as many as it may; connect to another one")
        holder = self._rights.holder(identity, hello.token, self._has_tls)
        # Nobody hands in batches under the number of another client.
        instance = instance_of(holder.name, hello.instance) if holder.name else hello.instance
        return ClientSession(self._services, writer, client_number(instance), holder, connection)

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

    def close(self) -> None:
        """Look at the rights no more."""
        if self._looking is not None:
            self._looking.cancel()
