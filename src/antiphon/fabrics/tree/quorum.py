"""The council: it decides which part of a tree that has come apart may order totally.

A part of the tree cannot tell brokers that have failed from brokers that it cannot reach. Two parts that both went on
to order totally would disagree. So total publications need a majority of the **council**: at first all brokers, and
later the brokers on which a majority has agreed. Two majorities of one council have a broker in common, which knows
everything that the earlier one has begun. Exactly half of a council is enough if it holds the member with the lowest
number.

The council changes in two steps, so that no two councils follow the same one unknown to each other:

1. A root that has a majority **proposes** its members as the next council, in a new epoch. A broker that begins that
   epoch knows the proposal, and takes it along wherever it goes.
2. When all of them have begun it, the next epoch **agrees** on it.

From the first step on, a broker that knows the proposal needs a majority of it as well as of the council, and so does
every broker that meets one. A proposal that was given up is forgotten when a later council is agreed on.

**A council never shrinks by itself.** Of n members any minority may fail, (n - 1) // 2 of them, and the others go on. A
council of c of these n keeps that promise only if c minus this minority is more than c / 2, so only if c is at least
2 * ((n - 1) // 2) + 1: that is n where n is odd, and n - 1 where it is even. So there is nothing worth having below n.
A newcomer takes the place of an absent member; if no member is absent, the council grows. Absent members whose places
are not taken still count: they keep their votes, and return with them. Only an operator can say that brokers are gone
for good (:meth:`Council.without`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr


@final
@mypyc_attr(acyclic=True)
class Council:
    """A broker's knowledge of the councils: their count, and the bodies whose majorities are needed. Immutable."""

    def __init__(self, number: i64, bodies: list[list[int]]) -> None:
        self.number: Final[i64] = number
        # The council, and what was proposed to follow it; each sorted.
        self.bodies: Final[list[list[int]]] = bodies

    def is_held_by(self, members: set[int]) -> bool:
        """Whether some brokers have all the majorities that are needed."""
        return all(is_majority(body, members) for body in self.bodies)

    def is_exactly(self, members: set[int]) -> bool:
        """Whether these brokers are the council, and nothing else is proposed."""
        return self.bodies == [sorted(members)]

    def to_follow(self, present: set[int]) -> set[int]:
        """The members of the council that is to follow this one when some brokers are there.

        All that are there are in it, and of the members that are away so many that it is not smaller than this one. It
        depends on nothing else, so a root that proposes it and the one that agrees on it mean the same.
        """
        size = max((len(body) for body in self.bodies), default=0)
        away = sorted({broker for body in self.bodies for broker in body if broker not in present})
        return {*present, *away[: max(0, size - len(present))]}

    def merged(self, other: Council) -> Council:
        """The joint knowledge of two brokers."""
        if self.number != other.number:
            return self if self.number > other.number else other
        more = [body for body in other.bodies if body not in self.bodies]
        return Council(self.number, sorted(self.bodies + more)) if more else self

    def proposing(self, members: set[int]) -> Council:
        """The same with a proposal."""
        return self.merged(Council(self.number, [sorted(members)]))

    def followed_by(self, members: set[int]) -> Council:
        """The next council."""
        return Council(self.number + 1, [sorted(members)])

    def without(self, gone: set[int]) -> Council:
        """The next council as an operator orders it, because some brokers do not exist any more."""
        members = {broker for body in self.bodies for broker in body if broker not in gone}
        return self.followed_by(members)


NOBODY: Final = Council(0, [])
"""Without a quorum no council is asked: brokers believe every reported failure."""


def is_majority(body: list[int], members: set[int]) -> bool:
    """Whether more than half of a body is there, or half of it with the first."""
    present = len([broker for broker in body if broker in members])
    return 2 * present > len(body) or (2 * present == len(body) and body[0] in members)
