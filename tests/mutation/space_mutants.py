"""Bugs in spaces, which the campaign of schedules with spaces must find."""

from __future__ import annotations

from tests.mutation.mutant import Mutant


def space(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, "spaces", f"spaces/{module}.py", old, new)


SPACES = (
    space(
        "a publication does not hand on what it was told about other topics",
        "dependencies",
        "        for other, entries in header.items():\n            for named_source",
        "        for other, entries in {}.items():\n            for named_source",
    ),
    space(
        "what a newcomer has passed over is left to the order of the topic",
        "dependencies",
        "        if unheard is None:\n",
        "        if True:\n",
    ),
    space(
        "a node names what is stable at one member",
        "stability",
        "        while waiting and all(self._has",
        "        while waiting and any(self._has",
    ),
    space(
        "nobody is asked that does not acknowledge",
        "stability",
        "acked.get(node, 0) < number and node not in lost",
        "False",
    ),
    space(
        "a question is answered before the publication is past",
        "space",
        "        if not is_member or self.barrier.count(topic, source) >= number:\n",
        "        if True:\n",
    ),
    space(
        "a node that subscribes again answers questions as no member",
        "space",
        " or self._outside.is_subscribing(topic)\n",
        "\n",
    ),
    space(
        "publications of gone sources are named for ever",
        "lost_sources",
        "                    space.gone(node)\n",
        "                    pass\n",
    ),
    space(
        "a subscription is effective though something that is followed has not come",
        "space",
        "        if self.barrier.covers(topic, self.dependencies.of(topic)):\n",
        "        if True:\n",
    ),
    space(
        "an own publication is past at once",
        "space",
        "            self._release(self.barrier.arrived(publication, {}))\n",
        "            self._release(self.barrier.passed(topic, source, sequence))\n",
    ),
    space(
        "a publication does not wait for what its topic puts before it",
        "barrier",
        "        for key in publication.dependencies:\n",
        "        for key in ():\n",
    ),
    space(
        "publications wait for topics without a subscription",
        "barrier",
        "            if not self.is_member(other):\n                continue\n",
        "",
    ),
    space(
        "the end of a subscription frees nothing",
        "barrier",
        "        for place in sorted(place for place in self._waiting if place[0] == topic):\n",
        "        for place in ():\n",
    ),
    space(
        "publications of a node overtake each other across topics",
        "process",
        "                elif not is_full and self.is_bounded(topic)",
        "                elif self.is_bounded(topic)",
    ),
    space(
        "publications are handed in without room",
        "process",
        " and self.is_bounded(topic) and self.inner.room(topic) > 0:\n",
        " and self.is_bounded(topic):\n",
    ),
)
