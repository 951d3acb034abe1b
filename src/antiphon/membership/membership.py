"""The common part of both kinds of membership: links, signs of life, how a node begins and ends in its cluster.

On cubes and trees each node keeps a connection to every other (:mod:`antiphon.membership.full_mesh`); in gossip a node
knows some of the others (:mod:`antiphon.membership.partial_view`). Both are state machines on one contract
(:mod:`antiphon.membership.host`), and both find their place the same way (:mod:`antiphon.membership.joining`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.kernel.errors import PeerError, ProtocolError
from antiphon.kernel.message import ProtocolMessage
from antiphon.membership.address_book import AddressBook
from antiphon.membership.data_directory import Directories, directory_name, foreign_directory
from antiphon.membership.heartbeats import FailureDetector
from antiphon.membership.host import HIGHEST, SECOND_US, Connection, Link, Place, Timer, microseconds
from antiphon.membership.messages import OLDEST_VERSION, PROTOCOL_VERSION, Control, Hello, KeepAlive, Peer

LOOK_OUT: Final = Timer("look out")
JOIN: Final = Timer("join")


class Membership:
    """The others as one node sees them."""

    knows_everybody = True
    """Whether this node can say something to all others and wait for their answers."""

    is_returning = False
    """Whether this node is who it was in an earlier life."""

    address_book: AddressBook

    @property
    def incarnation(self) -> int:
        """How many lives this node had before under the identifier that it has."""
        return 0

    def __init__(self, place: Place) -> None:
        self._instance = place.instance
        self._address = place.address
        self._settings = place.settings
        self._host = place.host
        self._events = place.events
        self._log = place.host.log
        self._directory = directory_name(place.host.facts, place.instance)
        self._directories = Directories(place.address, self._directory)
        self.links: dict[int, Link] = {}
        self.lost_nodes: list[int] = []
        # The connections of others that have said who they are, the oldest first, with the version that both ends know.
        self._connections: dict[Connection, int] = {}
        # How many links this life has opened.
        self._opened = 0
        self._has_entered = False
        self._is_refused = False
        self._detector = FailureDetector(self._settings.lost_seconds, 0.0)

    def start(self) -> None:
        """Look for a place in the cluster, unless the data directory is of another one."""
        self._host.set_timer(JOIN, microseconds(self._settings.join_seconds))
        reason = foreign_directory(self._host.facts, self._settings.cluster, self._settings.fabric)
        if reason:
            self._refuse(reason)
        else:
            self._begin_to_join()

    # What the fabrics do differently.

    def _begin_to_join(self) -> None:
        """Ask for a place, or begin without one."""
        raise NotImplementedError

    def leave(self) -> None:
        """Tell others that this node goes, where they would look for it otherwise."""

    def links_in_use(self) -> list[Link]:
        """The links over which something can be said now."""
        return list(self.links.values())

    def peers(self) -> list[Peer]:
        """The others that are there."""
        raise NotImplementedError

    def highest_identifier(self) -> int:
        """The highest identifier that any node ever had, as far as this one knows."""
        raise NotImplementedError

    def why_not_in(self) -> str:
        """The error for an application that has waited for a place in vain."""
        raise NotImplementedError

    def process_stepped(self) -> None:
        """The process has handled something, while this node joins: it may have found its place by that."""

    def membership_began(self, number: int) -> None:
        """The process takes part in something that is no topic of applications."""
        raise ProtocolError(f"the process takes part in topic {number}, for which nobody has asked")

    def dismiss(self, brokers: Sequence[int]) -> str:
        """An operator says that others are gone for good; the answer is why that means nothing here, if so."""
        return "only trees with a quorum and cubes wait for nodes that are gone; here nobody has to be dismissed"

    def figures(self) -> dict[str, Any]:
        """The part of the status that only this fabric has."""
        return {}

    def figures_of(self, number: int) -> dict[str, Any]:
        """The same of a topic."""
        return {}

    def watch(self, identifier: int) -> None:
        """The process wants to know when this peer is lost."""

    def unwatch(self, identifier: int) -> None:
        """It does not want to know any more."""

    def bytes_received(self) -> dict[int, int]:
        """How many bytes have come from each of those whose silence counts."""
        return {}

    def silent(self, identifier: int) -> None:
        """A peer has given no sign of life for so long that it counts as lost."""
        self._log.warning("silent", node=identifier, seconds=self._settings.lost_seconds)

    # Events.

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """A peer has connected and said who it is."""
        self._connections[connection] = hello.agreed_version()
        self._directories.greeted(hello)

    def _is_copy(self, connection: Connection, hello: Hello) -> bool:
        """Whether a node runs with a copy of the data directory of another one, and was told to stop."""
        copied = self._directories.copied(hello, [each for each in self._connections if each is not connection])
        # A node that is not in yet may be the copy itself.
        is_copy = copied != "" and self._has_entered
        if is_copy:
            connection.expel(copied)
        return is_copy

    def connection_ended(self, connection: Connection) -> None:
        """A connection that a peer opened has ended."""
        self._connections.pop(connection, None)

    def control_received(self, connection: Connection, message: Control) -> None:
        """A message about membership."""
        fabric = self._settings.fabric
        raise ProtocolError(f"a {type(message).__name__} has no meaning in the fabric {fabric!r} of this node")

    def link_opened(self, link: Link) -> None:
        """A link stands."""

    def link_refused(self, link: Link, reason: str, is_final: bool) -> None:
        """The other end of a link does not want it; ``is_final`` if it will never hear from this node again."""

    def link_lost(self, link: Link) -> None:
        """A link has ended, or could not be opened."""

    def expired(self, timer: Timer) -> None:
        """A timer has run out."""
        if timer == LOOK_OUT:
            self._poll_peers()
        elif timer == JOIN:
            if not self._has_entered:
                self._refuse(self.why_not_in())
        else:
            raise AssertionError(f"no part of a membership sets a timer {timer}")

    # Joining.

    def _take_place(self, identifier: int, members: list[int]) -> None:
        """This node has its place: its process begins."""
        self._events.placed(identifier, members)
        self._keep_highest()

    def _kept_highest(self) -> int:
        """The highest identifier of which an earlier life of this node has heard; -1 if there was none."""
        return int(self._host.facts.read(HIGHEST) or b"-1")

    def _keep_highest(self) -> None:
        """Remember which identifiers there were."""
        self._host.facts.put(HIGHEST, str(self.highest_identifier()).encode())
        self._host.facts.commit_soon()

    def _enter(self) -> None:
        """This node is in its cluster."""
        if self._has_entered or self._is_refused:
            return
        self._has_entered = True
        self._host.cancel_timer(JOIN)
        self._detector = FailureDetector(self._settings.lost_seconds, self._now_seconds())
        self._events.entered()
        self._poll_peers()

    def _refuse(self, reason: str) -> None:
        """This node has no place in the cluster."""
        if not self._is_refused:
            self._is_refused = True
            self._events.refused(reason)

    def _excluded(self, link: Link, reason: str) -> None:
        """Another node has said that it will not hear from this one again."""
        text = f"the node at {link.address} has excluded this one: {reason}"
        if self._has_entered:
            self._events.fail(PeerError(text))
        else:
            self._refuse(text)

    # Signs of life.

    def _poll_peers(self) -> None:
        """Ask silent peers for a sign of life, and count those as lost that have given none.

        Silence is no event, so a node looks again and again; a timer per peer would have to be set with every message.
        """
        silent = self._detector.poll(self._now_seconds(), self.bytes_received())
        for identifier in silent.asked:
            self.send_control(identifier, KeepAlive())
        for identifier in silent.lost:
            self.silent(identifier)
        self._looked()
        self._host.set_timer(LOOK_OUT, microseconds(self._detector.look_seconds))

    def _looked(self) -> None:
        """Silent peers were asked, and lost ones counted."""

    def silence_us(self, identifier: int) -> int:
        """For how long a peer has given no sign of life, also when it is lost for that reason; 0 if not for long."""
        return microseconds(self._detector.silence_seconds(identifier))

    def _now_seconds(self) -> float:
        return self._host.now() / SECOND_US

    # Saying something to others.

    def hello(self, target: str = "") -> Hello:
        """The first frame of a new link."""
        self._opened += 1
        return Hello(
            PROTOCOL_VERSION,
            self._settings.cluster,
            self._instance,
            self._address,
            target,
            oldest=OLDEST_VERSION,
            number=self._opened,
            directory=self._directory,
        )

    def version_of(self, identifier: int) -> int:
        """The version of the frames that a peer understands, as its last connection said; the oldest before that."""
        identifier_of = self.address_book.identifier_of
        versions = [said for each, said in self._connections.items() if identifier_of(each.instance) == identifier]
        return versions[-1] if versions else OLDEST_VERSION

    def identifier_of(self, instance: str) -> int | None:
        """The identifier of a peer by its instance."""
        return self.address_book.identifier_of(instance)

    def _own_identifier(self) -> int:
        identifier = self.address_book.me.identifier
        assert identifier is not None, "a node that is in its cluster has its place"
        return identifier

    def _sender_of(self, connection: Connection) -> int | None:
        return self.address_book.identifier_of(connection.instance)

    def addresses(self) -> list[str]:
        """Where the others are that are there."""
        return [peer.address for peer in self.peers()]

    def identifiers(self) -> set[int]:
        """The identifiers of the others that are there."""
        return {peer.identifier for peer in self.peers() if peer.identifier is not None}

    def counted(self) -> set[int]:
        """The identifiers of the others that are in the cluster as its process sees it."""
        return self.identifiers()

    def absent(self) -> set[int]:
        """The identifiers of the others that have a say in the cluster and are not in it now."""
        return set()

    def send_control(self, identifier: int, control: Control) -> None:
        """Send a message of hosts to a peer."""
        link = self.links.get(identifier)
        if link is not None:
            self._host.send(link, control)

    def spread(self, control: Control, received_from: int = -1) -> None:
        """Tell those to whom there is a link, except the one that has said it."""
        for identifier in self.links:
            if identifier != received_from:
                self.send_control(identifier, control)

    def link_for(self, identifier: int, message: ProtocolMessage) -> Link | None:
        """The link over which a message of the process is to go; None where there is nobody any more."""
        return self.links.get(identifier)
