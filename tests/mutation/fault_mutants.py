"""Bugs in what carries the cube through faults, and in what is read back from logs; see ``mutants.py``."""

from __future__ import annotations

from tests.mutation.mutant import Mutant


def faults(name: str, module: str, old: str, new: str, order: str | None = None) -> Mutant:
    return Mutant(name, "cube-faults", f"fabrics/cube/{module}.py", old, new, order)


REROUTING = (
    faults(
        "a tree is not repaired around a lost node",
        "repair/tree_repair",
        "        if route.lost(peer):\n            self.hand_on(topic, route, cluster(self._me, peer))\n",
        "        route.lost(peer)\n",
    ),
    faults(
        "a wave waits for a lost node",
        "repair/tree_repair",
        "        for key, route in list(topic.routes.items()):\n            if self.lead_around(topic, route, peer):\n",
        "        for key, route in list(topic.routes.items()):\n"
        "            route.parents.pop(peer, None)\n            if False:\n",
    ),
    faults(
        "a subscription waits for the answer of a lost node",
        "repair/surveys",
        "            self.settle(key, survey, peer)\n",
        "            survey.pending.settle(peer)\n",
    ),
    faults(
        "a node does not keep its own publications",
        "repair/tree_repair",
        "        self._retransmission.keep_packet(topic, packet)\n        route = Route(packet)\n",
        "        route = Route(packet)\n",
    ),
    faults(
        "a node keeps only the first publication of a bundle",
        "repair/retransmission",
        "            for publication in packet.publications:\n                kept.add(publication)\n",
        "            kept.add(packet.publications[0])\n",
    ),
    faults(
        "a node does not keep publications of others",
        "repair/delivery",
        "            self._retransmission.keep(topic, publication, order.past(publication.source))\n",
        "            pass\n",
    ),
    faults(
        "a node acknowledges to its parent before it has served its cluster",
        "route",
        "        done = [parent for parent, height in self.parents.items() if height < lowest]\n",
        "        done = [parent for parent, height in self.parents.items() if height <= lowest]\n",
    ),
    faults(
        "a node found during a subscription is not asked",
        "fault_tolerant",
        "                self.presence.meet(topic, peer)\n",
        "                pass\n",
    ),
    faults(
        "a node that serves a larger cluster leaves out one that it had handed on",
        "repair/tree_repair",
        "        while s > route.height:\n",
        "        while s > route.height + 1:\n",
    ),
)

LASTING = (
    faults(
        "members that find each other do not compare publications",
        "repair/anti_entropy",
        ".unanswered = None\n        self._compare(topic, peer, REQUEST)\n\n    def expire",
        ".unanswered = None\n\n    def expire",
    ),
    faults(
        "members compare once and never again",
        "repair/anti_entropy",
        "        for neighbour in self._neighbours(topic):\n            self._compare(topic, neighbour, REQUEST)\n",
        "",
    ),
    faults(
        "the last missing number is not sent",
        "repair/retransmission",
        "        number = last\n",
        "        number = last - 1\n",
    ),
    faults(
        "the first missing number is not sent",
        "repair/retransmission",
        "        while number > lowest and (logged == 0",
        "        while number > lowest + 1 and (logged == 0",
    ),
    faults(
        "a returned member does not enter the view again",
        "repair/anti_entropy",
        "        topic.view.add(peer, counter, True)\n",
        "",
    ),
    faults(
        "members that joined on the other side of a partition stay unknown",
        "repair/anti_entropy",
        "            topic.add_away(node, counter)\n            if topic.state == MEMBER:\n"
        "                self._unsettled.disturb(topic)\n",
        "            if topic.state == MEMBER:\n                self._unsettled.disturb(topic)\n",
    ),
    faults(
        "a report of a third node brings a leaver back",
        "repair/anti_entropy",
        "        self._former.depart(topic, word.source, word.sequence)\n",
        "",
    ),
    faults(
        "a returned node reuses a sequence number",
        "repair/anti_entropy",
        "        topic.published = topic.begun = max(topic.begun, mixed(topic).past(self._me))\n",
        "        topic.published = topic.begun = max(topic.begun, mixed(topic).past(self._me) - 1)\n",
    ),
    faults(
        "a returned node locks only members that it knows",
        "repair/anti_entropy",
        "            self._total_order.on_member_found(topic, peer)\n            self._compare(",
        "            self._compare(",
    ),
    faults(
        "a returned member is not told of locks whose owners are gone",
        "total_order/repair",
        "        self._tell_of_absent(topic, peer)\n\n",
        "\n",
    ),
    faults(
        "publications after a return follow nothing",
        "repair/delivery",
        "        order.adopt_barrier(vec[i64]([key for key in order.frontier() if key < 0 or",
        "        order.adopt_barrier(vec[i64]([key for key in order.frontier() if key == 0 and",
        "causal",
    ),
    faults(
        "a log counts waiting publications as logged",
        "fault_tolerant",
        "        return list(mixed(self.topic_table.find(topic)).frontier())\n",
        "        return list(self.delivery.have(self.topic_table.find(topic)))\n",
    ),
    faults(
        "a missing publication is given up while a member is away",
        "repair/anti_entropy",
        "            if now - since >= self._faults.forget_ticks:\n",
        "            if now - since >= self._faults.compare_ticks:\n",
    ),
    faults(
        "no member asks all others for a missing publication",
        "repair/anti_entropy",
        "            self._ask_all(topic, unsettled)\n            return\n",
        "            return\n",
    ),
    faults(
        "a member does not list waiting publications, and receives them again",
        "repair/anti_entropy",
        "            if not self._delivery.has_arrived(topic, key):\n",
        "            if True:\n",
    ),
    faults(
        "a member that has left sends no missing publications",
        "repair/anti_entropy",
        "message, theirs, mine) if message.is_member else GIVEN_ALL\n",
        "message, theirs, mine) if topic.state == MEMBER else GIVEN_ALL\n",
    ),
    # Rare: about one seed in a thousand shows it, those with newcomers between (``cube_overflow``).
    faults(
        "publications that only newcomers count as past are not requested",
        "repair/anti_entropy",
        "        asks_all = asks_all or (missing.is_lasting() and unsettled.quiet_rounds > 0)\n",
        "",
    ),
    # Rare: schedules in which most are down and the others publish in total order (seeds 8002857 and 8018971).
    faults(
        "a returned voter has forgotten the voters",
        "total_order/electorate",
        "        self._environment.rewrite([self.voter_is(), manager])\n",
        "        self._environment.rewrite([])\n",
    ),
    faults(
        "locks of begun publications are revoked with the others",
        "total_order/repair",
        " if lock.publication is None and lock.sequence > begun]\n",
        " if lock.publication is None]\n",
    ),
    # Rare: only where a node that claims crashes with the majority, and returns under a new identifier.
    faults(
        "the claim of a dead node survives while it waits for a majority",
        "total_order/quorum",
        "        self.early = [each for each in self.early if each.source != claimant]\n",
        "",
    ),
)

KEEPING = (
    faults(
        "gaps below a single number are overlooked",
        "repair/retransmit_buffer",
        "            reached = other.counts.get(source, 0)\n",
        "            reached = max([other.counts.get(source, 0)]\n"
        "                + [key >> SOURCE_BITS for key in other.singles if key & SOURCE_MASK == source])\n",
    ),
    faults(
        "the first requested log entry is not found",
        "repair/log_recovery",
        "            if publication_key(source, sequence) in lacking:\n",
        "            if publication_key(source, sequence) in lacking and sequence > firsts[source]:\n",
    ),
    faults(
        "the second piece of a log is not read",
        "repair/log_recovery",
        "        for message in reversed(entries):\n",
        "        reader.earlier()\n        for message in reversed(entries):\n",
    ),
)

FAULTS: tuple[Mutant, ...] = (*REROUTING, *LASTING, *KEEPING)

HARMLESS_FAULTS: tuple[Mutant, ...] = (
    faults(
        "publications from before a leave are not sent to nodes that are found",
        "fault_tolerant",
        "            if topic.state == MEMBER or (topic.state == OUTSIDE and topic.retransmit_buffer is not None):\n",
        "            if topic.state == MEMBER:\n",
    ),
)
"""Those that break no promise, because something else keeps it."""
