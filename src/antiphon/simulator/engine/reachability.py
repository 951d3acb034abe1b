"""What gets through: partitions, nodes that stand still, and the links that processes watch.

A copy is lost if a partition is in its way for longer than its connection outlasts. A process that watches a link hears
``detection`` ticks later that its peer is lost, and in the same way that it is found again.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.simulator.engine.calendar import Calendar
from antiphon.simulator.engine.connections import Connections
from antiphon.simulator.engine.events import NEVER, Flight, Life, LinkChange, Watch
from antiphon.simulator.engine.links import Links
from antiphon.simulator.engine.node import PAUSED, Node
from antiphon.simulator.network.network import Cut, Network
from antiphon.trace.recorder import DROPPED_PARTITION, DROPPED_RECEIVER_DOWN, DROPPED_SENDER_DOWN


@final
class Reachability:
    """Knows which nodes reach each other now, which copies arrive, and tells processes of the links they watch."""

    def __init__(
        self,
        network: Network,
        calendar: Calendar,
        nodes: list[Node],
        links: Links,
        connections: Connections,
        reconnects: bool,
        knows_lives: bool,
    ) -> None:
        self._network: Final[Network] = network
        self._calendar: Final[Calendar] = calendar
        self._nodes: Final[list[Node]] = nodes
        self._links: Final[Links] = links
        self._connections: Final[Connections] = connections
        # Whether hosts keep connections to all others and open them anew, as live nodes of a cube do: a connection that
        # could not be opened is told as lost, and who is connected with a later life knows that the earlier has ended.
        self._reconnects: Final[bool] = reconnects
        # Whether connections belong to lives, and nothing comes over that of an earlier one once there is another.
        self._knows_lives: Final[bool] = knows_lives
        self._cuts: list[Cut] = []
        # Nodes that stand still and are lost to others.
        self._standstills: dict[i64, Cut] = {}

    # Partitions, and nodes that stand still.

    def cut(self, cut: Cut) -> None:
        """Partition the network for the time that the cut names."""
        self._cuts.append(cut)
        # Over a connection something may have been lost, even if the other end can be reached again by then.
        for watch in self._links.all():
            self._look_around(watch, cut, self._network.in_order)

    def stand_still(self, node: Node) -> None:
        """A node has been paused for so long that others count it as lost: what is on its connections is gone.

        It learns that itself when it goes on, behind what had arrived before.
        """
        now = self._calendar.now
        standstill = Cut(now, NEVER, [[int(node.identifier)]], is_standstill=True)
        self._cuts.append(standstill)
        self._standstills[node.identifier] = standstill
        for watch in self._watches_with(node.identifier):
            self._look_later(watch, True, -self._network.detection)

    def end_standstill(self, node: Node) -> None:
        """What a node says in the moment in which it goes on is said on connections that have ended."""
        standstill = self._standstills.pop(node.identifier, None)
        if standstill is not None:
            over = Cut(standstill.start, self._calendar.now + 1, [[int(node.identifier)]], is_standstill=True)
            self._cuts = [over if cut is standstill else cut for cut in self._cuts]

    # Copies.

    def loss_of(self, target: Node, sender: Node, flight: Flight) -> i64:
        """Why a copy does not arrive at the end of its flight; 0 if it does."""
        reason: i64 = 0
        # A copy that was still in the output queue when its sender crashed has never left.
        if flight.departed > flight.life.crashed_at:
            reason = DROPPED_SENDER_DOWN
        for cut in self._cuts:
            # A connection that breaks takes with it what has not left yet.
            begun = flight.sent if self._network.in_order else flight.departed
            if self._breaks(cut) and cut.severs(sender.identifier, target.identifier, begun, flight.arrived):
                reason = DROPPED_PARTITION
        if self._knows_lives and (flight.life is not sender.life or flight.sent < target.life.began_at):
            # Over the connection of an earlier life nothing comes once there is another.
            reason = DROPPED_SENDER_DOWN if flight.life is not sender.life else DROPPED_RECEIVER_DOWN
        return reason

    def holds_up(self, target: Node, sender: Node, flight: Flight) -> bool:
        """Whether a copy on a connection has to wait, because of a short partition; it arrives later then."""
        if flight.is_late or not self._cuts:
            return False
        until = self._connections.held_until(sender.identifier, target.identifier, flight, self._cuts)
        if self._calendar.now > until:
            return False
        late = Flight(flight.message, flight.sent, flight.departed, flight.arrived, flight.life, True)
        self._calendar.schedule(until, target, sender, late)
        return True

    # Links that are watched.

    def watch(self, node: Node, peer: i64) -> None:
        """Let a node hear of what happens to a peer."""
        watch = self._links.add(node.identifier, peer, node.life)
        if watch is None:
            return
        if self._nodes[peer].process is None:
            # Over a connection that cannot be opened nothing gets through, even if the peer is there by then.
            self._look_later(watch, self._reconnects)
        for cut in self._cuts:
            self._look_around(watch, cut, self._reconnects)

    def introduce(self, node: Node) -> None:
        """Let a node and all others find each other that do not know each other, when they are connected."""
        for other in self._nodes:
            if other is not node:
                self._find(node, other)
                self._find(other, node)

    def _find(self, node: Node, peer: Node) -> None:
        if node.process is None:
            return
        watch = self._links.add(node.identifier, peer.identifier, node.life)
        if watch is None:
            return
        watch.is_lost = True
        self._look_later(watch, False)
        for cut in self._cuts:
            self._look_around(watch, cut, False)

    def went_up(self, node: Node) -> None:
        """A node has a process again: those who watch it are to find it."""
        for watch in self._links.of(node.identifier):
            if (self._reconnects or self._knows_lives) and not watch.is_lost:
                # Who is connected anew knows at once that the connection of an earlier life has ended.
                self._look_later(watch, True, -self._network.detection)
            self._look_later(watch, False)

    def went_down(self, node: Node) -> None:
        """A node has lost its process: its links break."""
        for watch in self._links.of(node.identifier):
            self._look_later(watch, True, 0, node.life if self._reconnects or self._knows_lives else None)

    def resumed(self, node: Node) -> None:
        """A node goes on after a pause: look at its links again."""
        for watch in self._watches_with(node.identifier):
            self._look_later(watch, False)

    def change_link(self, change: LinkChange) -> None:
        """Tell a process that a link which it watches has changed, if it has."""
        watch = change.watch
        watcher = self._nodes[watch.watcher]
        process = watcher.process
        if process is None or not watch.is_wanted or watch.life is not watcher.life:
            return
        if change.life is not None and change.life is not self._nodes[watch.peer].life:
            return
        if change.is_broken or not self._is_reachable(watch):
            if not watch.is_lost:
                watch.is_lost = True
                process.peer_lost(watch.peer)
        elif watch.is_lost:
            watch.is_lost = False
            process.peer_found(watch.peer)

    def _watches_with(self, identifier: i64) -> list[Watch]:
        """Who watches a node, and whom it watches."""
        return [watch for watch in self._links.all() if (watch.watcher == identifier) != (watch.peer == identifier)]

    def _look_around(self, watch: Watch, cut: Cut, breaks: bool) -> None:
        """If a partition is between the two now, look whether it lasts long enough, and again after its end."""
        now = self._calendar.now
        if self._breaks(cut) and cut.is_between(watch.watcher, watch.peer, now):
            self._look_later(watch, breaks)
            if cut.end < NEVER:
                self._look_later(watch, False, cut.end - now)

    def _breaks(self, cut: Cut) -> bool:
        """Whether connections do not outlast a partition. Without connections nothing outlasts any."""
        return not (self._network.in_order and self._connections.outlasts(cut))

    def _look_later(self, watch: Watch, is_broken: bool, after: i64 = 0, life: Life | None = None) -> None:
        watcher = self._nodes[watch.watcher]
        when = self._calendar.now + after + self._network.detection
        self._calendar.schedule(when, watcher, watcher, LinkChange(watch, is_broken, life))

    def _is_reachable(self, watch: Watch) -> bool:
        peer = self._nodes[watch.peer]
        if peer.process is None:
            return False
        if self._network.notices_pauses and peer.state == PAUSED and watch.is_lost:
            # Who stands still opens no connection.
            return False
        now = self._calendar.now
        return not any(self._breaks(cut) and cut.is_between(watch.watcher, watch.peer, now) for cut in self._cuts)
