"""Which voter each node is: a node that returns with its log has a new identifier, and the vote of its earlier lives.

A **voter** is named by the identifier of its first life. Each of its lives is an *incarnation*. A node says which voter
it is when it meets others (``VoterNotice``), after that is on its disk. The voter has one data directory, and only one
process at a time can have that open: so once a later incarnation is known, every earlier one is over for good.

A node without a data directory, or one that has lost it, is a voter of its own.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from antiphon.kernel.process import NO_NODE

LIVES_AT_MOST: Final = 4096
"""Of so many nodes it is known which voters they are or were; those that were over first are forgotten first."""


@final
class VoterIncarnations:
    """The voters that nodes are, as one node knows them."""

    def __init__(self, me: i64, nodes: list[int], voter: i64 = NO_NODE, incarnation: i64 = 0) -> None:
        self._voters: Final[dict[i64, tuple[i64, i64]]] = {node: (node, 0) for node in nodes}
        # By voter the node that is its latest life.
        self._latest: Final[dict[i64, i64]] = {node: node for node in nodes}
        self.voter: Final[i64] = me if voter == NO_NODE else voter
        self.incarnation: Final[i64] = incarnation
        self.introduce(me, self.voter, incarnation)

    def introduce(self, node: i64, voter: i64, incarnation: i64) -> list[i64]:
        """A node says which voter it is; the nodes whose lives are known to be over since then."""
        self._voters.pop(node, (0, 0))
        self._voters[node] = (voter, incarnation)
        before = self._latest.get(voter, NO_NODE)
        if before in (node, NO_NODE):
            self._latest[voter] = node
            # It may have begun before anybody spoke of it.
            return [voter] if before == NO_NODE and voter != node else []
        if self._voters.get(before, (voter, NO_NODE))[1] > incarnation:
            return []
        self._latest[voter] = node
        self._forget()
        return [before]

    def voter_of(self, node: i64) -> i64:
        """The voter that a node is or was; nobody if it has not said so."""
        return self._voters.get(node, (NO_NODE, 0))[0]

    def latest(self, voter: i64) -> i64:
        """The latest life of a voter that is known."""
        return self._latest.get(voter, voter)

    def is_over(self, node: i64) -> bool:
        """Whether a later life of the same voter is known."""
        voter = self._voters.get(node, (node, 0))[0]
        return self._latest.get(voter, node) != node

    def nodes_of(self, voter: i64) -> list[i64]:
        """The nodes that are or were a voter, as far as that is known."""
        found = [node for node, (one, _) in self._voters.items() if one == voter]
        return found if voter in found else [voter, *found]

    def _forget(self) -> None:
        """Keep no more than is useful; what is over comes first, because later lives were introduced later."""
        if len(self._voters) > LIVES_AT_MOST:
            for node in list(self._voters):
                if self.is_over(node):
                    del self._voters[node]
                    return

    def text(self) -> str:
        """The state as text, to compare states."""
        return f"{sorted(self._voters.items())} {sorted(self._latest.items())}"
