"""Bugs in joining and returning, one for each rule, that campaigns over whole nodes must find."""

from __future__ import annotations

from tests.mutation.mutant import Mutant


def membership(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, "membership", f"membership/{module}.py", old, new)


MEMBERSHIP: tuple[Mutant, ...] = (
    membership(
        "an identifier is given before it is on disk",
        "joining",
        "        if not self._host.facts.is_kept or identifier in self._on_disk:\n",
        "        if True:\n",
    ),
    membership(
        "a founder has its identifier before that is on disk",
        "founding",
        "        self._host.when_safe(FOUND)\n",
        "        self._host.set_timer(FOUND, 0)\n",
    ),
    membership(
        "a founder that returns does not look for its cluster",
        "founding",
        "        contacts = list(join) or self._earlier()\n",
        "        contacts = list(join)\n",
    ),
    membership(
        "a giver of places keeps the part that it gave",
        "address_book",
        "        self._first, self._end = identifier + 1, self._end - part\n",
        "        self._first = identifier + 1\n",
    ),
    membership(
        "a newcomer that asks again is given another place",
        "address_book",
        "        if given is not None:\n            return given\n        if self._first",
        "        if self._first",
    ),
    membership(
        "a block of identifiers is taken although others refuse",
        "id_allocation",
        "        if block is None or not all(self._answers.values()):\n",
        "        if block is None:\n",
    ),
    membership(
        "a place that a newcomer did not take stays known",
        "address_book",
        "        self._appointments.pop(known, None)\n        self.forget(known)\n",
        "",
    ),
    membership(
        "a connection counts before the other end has said who it is",
        "full_mesh",
        "        if identifier is not None and identifier >= self._founders:\n",
        "        if False:\n",
    ),
    membership(
        "a lost node is not looked for",
        "full_mesh",
        "            self._retries.later(identifier)\n",
        "            pass\n",
    ),
    membership(
        "a founder without its disk is taken for its earlier life",
        "tree_members",
        "        is_founding = not has_joined and not (self._has_quorum and self._is_in)\n",
        "        is_founding = not has_joined\n",
    ),
    membership(
        "in gossip lost contacts are not tried again",
        "partial_view",
        "        self._retries += 1\n        self._set_retry()\n",
        "        self._retries += 1\n",
    ),
    membership(
        "a node that is not alone waits for others to introduce the next one at an address",
        "cube_members",
        "0 if is_alone else SUCCESSOR_US)\n",
        "0 if is_alone else 1 << 60)\n",
    ),
    membership(
        "a founder that has been given another identifier is still taken for the founder",
        "tree_members",
        "hello.identifier != known\n",
        "False\n",
    ),
    membership(
        "a newcomer speaks to a founder that has not said who it is",
        "full_mesh",
        "(identifier < self._founders or not link.instance)",
        "not link.instance",
    ),
    Mutant(
        "a node that leaves does not hand on what only it has",
        "membership",
        "fabrics/cube/repair/anti_entropy.py",
        "            self._retransmission.hand_on(topic, self._neighbours(topic), self._presence.present)\n",
        "            pass\n",
    ),
)
