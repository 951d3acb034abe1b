"""Bugs in what carries the cube through faults, and in what is read back from logs; see ``mutants.py``."""

from __future__ import annotations

from tests.mutation.mutant import Mutant


def faults(name: str, module: str, old: str, new: str, order: str | None = None) -> Mutant:
    return Mutant(name, "cube-faults", f"fabrics/cube/{module}.py", old, new, order)


REROUTING = (
    faults(
        "a tree is not led around one who is lost",
        "repair/tree_repair",
        "        if route.lost(peer):\n            self.hand_on(topic, route, cluster(self._me, peer))\n",
        "        route.lost(peer)\n",
    ),
    faults(
        "an answer is awaited from one who is lost",
        "repair/tree_repair",
        "        for key, route in list(topic.routes.items()):\n            if self.lead_around(topic, route, peer):\n",
        "        for key, route in list(topic.routes.items()):\n"
        "            route.parents.pop(peer, None)\n            if False:\n",
    ),
    faults(
        "a subscription waits for the answer of one who is lost",
        "repair/surveys",
        "            self.settle(key, survey, peer)\n",
        "            survey.pending.settle(peer)\n",
    ),
    faults(
        "own publications are not kept",
        "repair/tree_repair",
        "        self._retransmission.keep_packet(topic, packet)\n        route = Route(packet)\n",
        "        route = Route(packet)\n",
    ),
    faults(
        "of a bundle only the first is kept",
        "repair/retransmission",
        "            for publication in packet.publications:\n                kept.add(publication)\n",
        "            kept.add(packet.publications[0])\n",
    ),
    faults(
        "what comes from others is not kept",
        "repair/delivery",
        "                self._retransmission.keep(topic, publication)\n",
        "                pass\n",
    ),
    faults(
        "a parent is told before its own cluster is served",
        "route",
        "        done = [parent for parent, height in self.parents.items() if height < lowest]\n",
        "        done = [parent for parent, height in self.parents.items() if height <= lowest]\n",
    ),
    faults(
        "who was found while somebody subscribed is not met",
        "fault_tolerant",
        "                self.presence.meet(topic, peer)\n",
        "                pass\n",
    ),
    faults(
        "a cluster that was handed on before is not handed on when a larger one is served",
        "repair/tree_repair",
        "        while s > route.height:\n",
        "        while s > route.height + 1:\n",
    ),
)

LASTING = (
    faults(
        "members that find each other do not compare",
        "repair/anti_entropy",
        ".unanswered = None\n        self._compare(topic, peer, REQUEST)\n\n    def expire",
        ".unanswered = None\n\n    def expire",
    ),
    faults(
        "members compare when they find each other and never again",
        "repair/anti_entropy",
        "        for neighbour in self._neighbours(topic):\n            self._compare(topic, neighbour, REQUEST)\n",
        "",
    ),
    faults(
        "the last number that another one lacks is not given",
        "repair/retransmission",
        "        number = last\n",
        "        number = last - 1\n",
    ),
    faults(
        "the first number that another one lacks is not given",
        "repair/retransmission",
        "        while number > reached and (logged == 0",
        "        while number > reached + 1 and (logged == 0",
    ),
    faults(
        "a member that is back is not in the view again",
        "repair/anti_entropy",
        "        topic.view.add(peer, counter, True)\n",
        "",
    ),
    faults(
        "members of whom one side has not heard stay unknown",
        "repair/anti_entropy",
        "            topic.away[node] = counter\n            if topic.state == MEMBER:\n"
        "                self._unsettled.disturb(topic)\n",
        "            if topic.state == MEMBER:\n                self._unsettled.disturb(topic)\n",
    ),
    faults(
        "hearsay brings a leaver back",
        "repair/anti_entropy",
        "        departed[word.source] = max(word.sequence, departed.get(word.source, -1))\n",
        "",
    ),
    faults(
        "a return begins with a number that was used",
        "repair/anti_entropy",
        "        topic.published = topic.begun = max(topic.begun, order.past(self._me))\n",
        "        topic.published = topic.begun = max(topic.begun, order.past(self._me) - 1)\n",
    ),
    faults(
        "what is published after a return follows nothing",
        "repair/anti_entropy",
        "        order.adopt_barrier(vec[i64]([key for key in order.frontier() if key < 0 or",
        "        order.adopt_barrier(vec[i64]([key for key in order.frontier() if key == 0 and",
        "causal",
    ),
    faults(
        "a log is said to hold what still waited",
        "fault_tolerant",
        "        return list(mixed(self.topic_table.find(topic)).frontier())\n",
        "        return list(self.delivery.have(self.topic_table.find(topic)))\n",
    ),
    faults(
        "what is missing is given up when all have answered, though somebody is away",
        "repair/anti_entropy",
        "            if now - since >= self._faults.forget_ticks:\n",
        "            if now - since >= self._faults.compare_ticks:\n",
    ),
    faults(
        "nobody asks all for what is missing",
        "repair/anti_entropy",
        "            self._ask_all(topic, unsettled)\n            return\n",
        "            return\n",
    ),
    faults(
        "what waits is not named among what a member has, and comes again",
        "repair/anti_entropy",
        "            if not self._delivery.has_arrived(topic, key):\n",
        "            if True:\n",
    ),
    faults(
        "who has left gives nothing",
        "repair/anti_entropy",
        "message, theirs, mine) if message.is_member else GIVEN_ALL\n",
        "message, theirs, mine) if topic.state == MEMBER else GIVEN_ALL\n",
    ),
    # Rare: about one seed in a thousand shows it, those with newcomers between (``cube_overflow``).
    faults(
        "what only newcomers count as past is asked of nobody",
        "repair/anti_entropy",
        "        asks_all = asks_all or (missing.is_lasting() and unsettled.quiet_rounds > 0)\n",
        "",
    ),
    # Rare: schedules in which most are down and the others publish in total order (seeds 8002857 and 8018971).
    faults(
        "a voter that returns has forgotten who counts",
        "total_order/electorate",
        "        self._environment.rewrite([self.voter_is(), manager])\n",
        "        self._environment.rewrite([])\n",
    ),
    faults(
        "locks of what has begun are taken back with the others",
        "total_order/repair",
        " if lock.publication is None and lock.sequence > begun]\n",
        " if lock.publication is None]\n",
    ),
    # Rare: only where a node that claims crashes with the majority, and returns under a new identifier.
    faults(
        "a claim of a dead node that waits for a majority is kept",
        "total_order/quorum",
        "        self.early = [each for each in self.early if each.source != claimant]\n",
        "",
    ),
)

KEEPING = (
    faults(
        "gaps below something single are not seen",
        "repair/retransmit_buffer",
        "            reached = other.counts.get(source, 0)\n",
        "            reached = max([other.counts.get(source, 0)]\n"
        "                + [key >> SOURCE_BITS for key in other.singles if key & SOURCE_MASK == source])\n",
    ),
    faults(
        "the first entry of the log that is wanted is not found",
        "repair/log_recovery",
        "            if publication_key(source, sequence) in lacking:\n",
        "            if publication_key(source, sequence) in lacking and sequence > bounds[source][0]:\n",
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
        "what a node said before it left is not given to those it finds",
        "fault_tolerant",
        "            if topic.state == MEMBER or (topic.state == OUTSIDE and topic.retransmit_buffer is not None):\n",
        "            if topic.state == MEMBER:\n",
    ),
)
"""Those that break no promise, because something else keeps it."""
