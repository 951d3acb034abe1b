"""A client that goes on at this node with what it began at another: its batches stay in one order, and come once.

The client hands in again what it does not know to be safe (:mod:`antiphon.sessions.unacked`). Some of that has been
delivered already: here, or at other nodes that were asked when the client came. The latter is waited for, so that it is
in the log of this node when the client is told that it is accepted, and so that what follows it is published after it.
If it does not come, it is published once more in gossip: author and number are the same, so whoever has it drops the
copy. On cubes and trees logs do not hold copies, and who comes back would wait for what no log holds; there the client
is told that nobody knows what becomes of it.

What the client published before is of another source than what this node publishes for it from now on. A publication in
``causal`` or ``total`` order follows all that was delivered here, and so that too; one in ``fifo`` order follows
nothing but what this node has published. So the first of these is published in ``causal`` order, which is stronger, and
the others stick to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from antiphon.api.topic_state import LiveTopic
from antiphon.kernel.errors import PeerError
from antiphon.kernel.interval_set import IntervalSet

LOOK_SECONDS: Final = 0.02
"""How often a node looks whether something has come."""

KNOWN_SECONDS: Final = 30.0
"""How long a node waits for what a client has seen or published elsewhere: it is there, and will come."""


class NodeTraits(NamedTuple):
    """The node to which a client has come: who it is, and whether it publishes again what does not come."""

    identifier: int
    publishes_again: bool


class Crossing:
    """What a client from elsewhere publishes here on one topic.

    ``known`` is what others had delivered of its batches when it came. On a tree a broker does not know what was past
    when it became a member, and may never deliver that; so ``is_waited_for`` says whether it is waited for. ``failure``
    says why the node could not catch up with what the client has seen.
    """

    def __init__(
        self,
        node: NodeTraits,
        topic: LiveTopic,
        client: int,
        known: Sequence[IntervalSet],
        is_waited_for: bool,
        failure: PeerError | None = None,
    ) -> None:
        self.failure = failure
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._topic = topic
        self._client = client
        self._known = known
        self._is_waited_for = is_waited_for
        self._wait_until = self._loop.time() + KNOWN_SECONDS
        # Whether the last publication for the client follows all that came before it.
        self._is_bound = False
        # Batches that come while an earlier one is waited for must not overtake it.
        self.turns = asyncio.Lock()

    async def has_come(self, serial: int) -> bool:
        """Whether a batch need not be published; to be asked in turn."""
        if not any(seen.has(serial) for seen in self._known):
            has_come = self._is_here(serial)
        elif self._is_waited_for:
            has_come = await self._until_here(serial)
            if not has_come and not self._node.publishes_again:
                raise PeerError(
                    f"a message on {self._topic.name!r} that was handed in at another node has not come to node "
                    f"{self._node.identifier} in {KNOWN_SECONDS:g} seconds; it may yet come"
                )
        else:
            has_come = True
        if has_come:
            self._is_bound = False
        return has_come

    def _is_here(self, serial: int) -> bool:
        return self._topic.seen.has(self._client, serial)

    async def _until_here(self, serial: int) -> bool:
        # All together, not each: what does not come in that time does not come.
        while not self._is_here(serial) and self._topic.is_member() and self._loop.time() < self._wait_until:
            await asyncio.sleep(LOOK_SECONDS)
        return self._is_here(serial)

    def order_of(self, order: str) -> str:
        """In which order a batch is published that the client wants in this one, to be asked in turn.

        It is to follow all that has come of this client.
        """
        chosen = "causal" if order == "fifo" and not self._is_bound else order
        self._is_bound = self._is_bound or chosen != "none"
        return chosen
