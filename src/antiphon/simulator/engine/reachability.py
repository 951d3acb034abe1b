"""Reachability: partitions, paused nodes, and the links that processes watch.

A copy is lost if a partition is in its way for longer than its connection survives. A process that watches a link is
told ``detection`` ticks later that its peer is lost, and in the same way that it is found again.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.simulator.engine.calendar import Calendar
from antiphon.simulator.engine.connections import ConnectionModel
from antiphon.simulator.engine.events import NEVER, Flight, Incarnation, LinkChange, LinkWatch
from antiphon.simulator.engine.link_watches import LinkWatches
from antiphon.simulator.engine.node import PAUSED, SimulatedNode
from antiphon.simulator.network.network import NetworkModel, NetworkPartition
from antiphon.trace.recorder import DROPPED_PARTITION, DROPPED_RECEIVER_DOWN, DROPPED_SENDER_DOWN


@final
class Reachability:
    """Decides which nodes reach each other and which copies arrive, and tells processes about the links they watch."""

    def __init__(
        self,
        network: NetworkModel,
        calendar: Calendar,
        nodes: list[SimulatedNode],
        links: LinkWatches,
        connections: ConnectionModel,
        reconnects: bool,
        knows_incarnations: bool,
    ) -> None:
        self._network: Final[NetworkModel] = network
        self._calendar: Final[Calendar] = calendar
        self._nodes: Final[list[SimulatedNode]] = nodes
        self._links: Final[LinkWatches] = links
        self._connections: Final[ConnectionModel] = connections
        # Whether hosts keep connections to all others and reopen them, as live nodes of a cube do: a connection that
        # could not be opened is reported as lost, and a node that is connected to a later incarnation knows that the
        # earlier one has ended.
        self._reconnects: Final[bool] = reconnects
        # Whether connections belong to incarnations: once a later incarnation exists, nothing arrives from an earlier
        # one.
        self._knows_incarnations: Final[bool] = knows_incarnations
        self._cuts: list[NetworkPartition] = []
        # Paused nodes that others count as lost.
        self._standstills: dict[i64, NetworkPartition] = {}

    # Partitions, and paused nodes.

    def cut(self, cut: NetworkPartition) -> None:
        """Partition the network for the duration of the cut."""
        self._cuts.append(cut)
        # Copies on a connection may have been lost, even if the other end is reachable again by then.
        for watch in self._links.all():
            self._look_around(watch, cut, self._network.in_order)

    def stand_still(self, node: SimulatedNode) -> None:
        """A node has been paused for so long that others count it as lost: copies on its connections are lost.

        The node itself learns this when it resumes, after the events that arrived before.
        """
        now = self._calendar.now
        standstill = NetworkPartition(now, NEVER, [[int(node.identifier)]], is_standstill=True)
        self._cuts.append(standstill)
        self._standstills[node.identifier] = standstill
        for watch in self._watches_with(node.identifier):
            self._look_later(watch, True, -self._network.detection)

    def end_standstill(self, node: SimulatedNode) -> None:
        """End the isolation of a resumed node. Messages that it sends at that moment use ended connections."""
        standstill = self._standstills.pop(node.identifier, None)
        if standstill is not None:
            over = NetworkPartition(
                standstill.start, self._calendar.now + 1, [[int(node.identifier)]], is_standstill=True
            )
            self._cuts = [over if cut is standstill else cut for cut in self._cuts]

    # Copies.

    def loss_of(self, target: SimulatedNode, sender: SimulatedNode, flight: Flight) -> i64:
        """Why a copy does not arrive at the end of its flight; 0 if it does."""
        reason: i64 = 0
        # A copy in the output queue of a crashed sender never leaves.
        if flight.departed > flight.incarnation.crashed_at:
            reason = DROPPED_SENDER_DOWN
        for cut in self._cuts:
            # A broken connection loses the copies that have not left yet.
            begun = flight.sent if self._network.in_order else flight.departed
            if self._breaks(cut) and cut.severs(sender.identifier, target.identifier, begun, flight.arrived):
                reason = DROPPED_PARTITION
        if self._knows_incarnations and (
            flight.incarnation is not sender.incarnation or flight.sent < target.incarnation.began_at
        ):
            # Once a later incarnation exists, nothing arrives over the connection of an earlier one.
            reason = DROPPED_SENDER_DOWN if flight.incarnation is not sender.incarnation else DROPPED_RECEIVER_DOWN
        return reason

    def holds_up(self, target: SimulatedNode, sender: SimulatedNode, flight: Flight) -> bool:
        """Whether a copy on a connection must wait because of a short partition; it arrives later then."""
        if flight.is_late or not self._cuts:
            return False
        until = self._connections.held_until(sender.identifier, target.identifier, flight, self._cuts)
        if self._calendar.now > until:
            return False
        late = Flight(flight.message, flight.sent, flight.departed, flight.arrived, flight.incarnation, True)
        self._calendar.schedule(until, target, sender, late)
        return True

    # Watched links.

    def watch(self, node: SimulatedNode, peer: i64) -> None:
        """Let a node watch a peer."""
        watch = self._links.add(node.identifier, peer, node.incarnation)
        if watch is None:
            return
        if self._nodes[peer].process is None:
            # Nothing passes a connection that cannot be opened, even if the peer is up by then.
            self._look_later(watch, self._reconnects)
        for cut in self._cuts:
            self._look_around(watch, cut, self._reconnects)

    def silence_ticks(self, watcher: i64, peer: i64) -> i64:
        """For how long a node has heard nothing of a peer though no link broke; 0 below half of the detection time.

        Hosts ask silent peers for signs of life: a peer that is only quiet is heard in time.
        """
        now, node = self._calendar.now, self._nodes[peer]
        since = now
        if self._network.notices_pauses and node.state == PAUSED:
            since = node.paused_at
        for cut in self._cuts:
            if cut.start < since and self._breaks(cut) and cut.is_between(watcher, peer, now):
                since = cut.start
        silent = now - since
        return silent if 2 * silent >= self._network.detection else 0

    def introduce(self, node: SimulatedNode) -> None:
        """Let a node and all others that do not know each other find each other, when they are connected."""
        for other in self._nodes:
            if other is not node:
                self._find(node, other)
                self._find(other, node)

    def _find(self, node: SimulatedNode, peer: SimulatedNode) -> None:
        if node.process is None:
            return
        watch = self._links.add(node.identifier, peer.identifier, node.incarnation)
        if watch is None:
            return
        watch.is_lost = True
        self._look_later(watch, False)
        for cut in self._cuts:
            self._look_around(watch, cut, False)

    def went_up(self, node: SimulatedNode) -> None:
        """A node has a process again: its watchers will find it."""
        for watch in self._links.of(node.identifier):
            if (self._reconnects or self._knows_incarnations) and not watch.is_lost:
                # A node that is connected anew knows at once that the connection of the earlier incarnation has ended.
                self._look_later(watch, True, -self._network.detection)
            self._look_later(watch, False)

    def went_down(self, node: SimulatedNode) -> None:
        """A node has lost its process: its links break."""
        for watch in self._links.of(node.identifier):
            self._look_later(watch, True, 0, node.incarnation if self._reconnects or self._knows_incarnations else None)

    def resumed(self, node: SimulatedNode) -> None:
        """A node resumes after a pause: check its links again."""
        for watch in self._watches_with(node.identifier):
            self._look_later(watch, False)

    def change_link(self, change: LinkChange) -> None:
        """Tell a process that a watched link has changed, if it has."""
        watch = change.watch
        watcher = self._nodes[watch.watcher]
        process = watcher.process
        if process is None or not watch.is_wanted or watch.incarnation is not watcher.incarnation:
            return
        if change.incarnation is not None and change.incarnation is not self._nodes[watch.peer].incarnation:
            return
        if change.is_broken or not self._is_reachable(watch):
            if not watch.is_lost:
                watch.is_lost = True
                process.peer_lost(watch.peer)
        elif watch.is_lost:
            watch.is_lost = False
            process.peer_found(watch.peer)

    def _watches_with(self, identifier: i64) -> list[LinkWatch]:
        """The watches of a node, and those on it."""
        return [watch for watch in self._links.all() if (watch.watcher == identifier) != (watch.peer == identifier)]

    def _look_around(self, watch: LinkWatch, cut: NetworkPartition, breaks: bool) -> None:
        """If a partition separates the two now, check whether it lasts long enough, and again after its end."""
        now = self._calendar.now
        if self._breaks(cut) and cut.is_between(watch.watcher, watch.peer, now):
            self._look_later(watch, breaks)
            if cut.end < NEVER:
                self._look_later(watch, False, cut.end - now)

    def _breaks(self, cut: NetworkPartition) -> bool:
        """Whether a partition breaks connections. Without connections every partition does."""
        return not (self._network.in_order and self._connections.outlasts(cut))

    def _look_later(
        self, watch: LinkWatch, is_broken: bool, after: i64 = 0, incarnation: Incarnation | None = None
    ) -> None:
        watcher = self._nodes[watch.watcher]
        when = self._calendar.now + after + self._network.detection
        self._calendar.schedule(when, watcher, watcher, LinkChange(watch, is_broken, incarnation))

    def _is_reachable(self, watch: LinkWatch) -> bool:
        peer = self._nodes[watch.peer]
        if peer.process is None:
            return False
        if self._network.notices_pauses and peer.state == PAUSED and watch.is_lost:
            # A paused node opens no connection.
            return False
        now = self._calendar.now
        return not any(self._breaks(cut) and cut.is_between(watch.watcher, watch.peer, now) for cut in self._cuts)
