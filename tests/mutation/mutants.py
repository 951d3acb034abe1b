"""Bugs to be planted in a copy of the product, one at a time: what campaigns must find.

Each is a change of one place of one module, of the kind that people make: a message forgotten, a number off by one, an
answer given too early, a timer lost. The place is found by its text, so that a change of the product that moves it does
no harm, and one that removes it is noticed: the bug can then be planted no more, and must be thought of anew.
"""

from __future__ import annotations

from tests.mutation.fault_mutants import FAULTS, HARMLESS_FAULTS
from tests.mutation.mutant import Mutant


def cube(name: str, module: str, old: str, new: str, order: str | None = None) -> Mutant:
    return Mutant(name, "cube", f"fabrics/cube/{module}.py", old, new, order)


def orders(name: str, module: str, old: str, new: str, order: str | None = None) -> Mutant:
    return Mutant(name, "cube", f"orders/{module}.py", old, new, order)


def tree(name: str, module: str, old: str, new: str, order: str | None = None) -> Mutant:
    return Mutant(name, "tree", f"fabrics/tree/{module}.py", old, new, order)


def gossip(name: str, module: str, old: str, new: str, order: str | None = None) -> Mutant:
    return Mutant(name, "gossip", f"fabrics/gossip/{module}.py", old, new, order)


def epto(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, "epto", f"fabrics/gossip/epto/{module}.py", old, new)


CUBE = (
    cube(
        "a cluster that was refused is given to nobody else",
        "dissemination",
        "            count = self.send_to_cluster(topic, refusal.packet, cluster(self._me, sender))\n",
        "            count = 0\n",
    ),
    cube(
        "a subtree is acknowledged before it has the publication",
        "dissemination",
        "            topic.waves.open(publication_key(packet.source, packet.sequence), count, sender)\n        else:\n",
        "            pass\n        if True:\n",
    ),
    cube(
        "a wave that has ended lets no other begin",
        "dissemination",
        "            topic.in_flight -= 1\n",
        "            pass\n",
    ),
    cube(
        "the word of a leaver ends its next membership too",
        "view",
        "        if known < 0 or known > counter:\n",
        "        if known < 0:\n",
    ),
    cube(
        "the first of what came early is forgotten",
        "membership",
        "        for publication in early:\n            self._delivery.take(topic, publication)\n",
        "        for publication in early[1:]:\n            self._delivery.take(topic, publication)\n",
    ),
    cube(
        "a newcomer counts nothing as past",
        "membership",
        "        topic.order.start_from(merged_frontiers(topic.inherited, survey.entries))\n",
        "        topic.order.start_from(topic.inherited)\n",
    ),
    cube(
        "what a node had delivered does not precede what it publishes after it has come back",
        "membership",
        "        successor.adopt_barrier(order.barrier())\n",
        "        pass\n",
        "causal",
    ),
    cube(
        "the home forgets what leavers counted as past",
        "directory",
        "        record.past = merged_frontiers(record.past, past)\n",
        "        record.past = past\n",
    ),
    cube(
        "the home takes a member off its list that has come back",
        "directory",
        "        if record.listed.get(node, counter + 1) < counter:\n            del record.listed[node]\n",
        "        record.listed.pop(node, None)\n",
    ),
    cube(
        "what is held back does not keep its wave open",
        "aggregation/dissemination",
        "            missing = forwarded.copies + (1 if forwarded.blocked > 0 else 0)\n",
        "            missing = forwarded.copies\n",
    ),
    cube(
        "of several packets held back for one only the first goes on",
        "aggregation/dissemination",
        "                for forwarded in queue:\n                    forwarded.check_rest()\n",
        "                for forwarded in queue[:1]:\n                    forwarded.check_rest()\n",
    ),
    cube(
        "a total publication does not wait for what others have published",
        "total_order/ordering",
        "        closing.entries = merged_frontiers(closing.entries, message.entries)\n",
        "        pass\n",
        "total",
    ),
    cube(
        "a newcomer is not told of locks",
        "membership",
        "        if len(survey.announced) > 0:\n",
        "        if len(survey.announced) < 0:\n",
        "mixed",
    ),
)

ORDERS = (
    orders(
        "one number of a source may be missing",
        "causal",
        "        if past.get(publication.source) < publication.sequence - 1:\n",
        "        if past.get(publication.source) < publication.sequence - 2:\n",
    ),
    orders(
        "who has waited for one dependency waits for no other",
        "causal",
        "            missing = self._missing(publication, waiting.checked)\n",
        "            missing = -1\n",
        "causal",
    ),
    orders(
        "of what waits for one delivery only the first is looked at again",
        "causal",
        "        for waiting in queue:\n            publication = waiting.publication\n",
        "        for waiting in queue[:1]:\n            publication = waiting.publication\n",
    ),
    orders(
        "a barrier is pruned of newer publications too",
        "barriers",
        "                    if barrier.get(source, -1) == key >> SOURCE_BITS:\n",
        "                    if barrier.get(source, -1) >= 0:\n",
        "causal",
    ),
    orders(
        "a publication that closes a gap lets only itself go",
        "fifo",
        "            follower = self._held.pop(publication_key(source, sequence + 1), None)\n",
        "            follower = None\n",
        "fifo",
    ),
    orders(
        "single publications that are named are not waited for",
        "causal",
        "            if key >= 0 and not self._past.has(key & SOURCE_MASK, key >> SOURCE_BITS):\n",
        "            if key < 0:\n",
        "mixed",
    ),
    orders(
        "what was delivered beyond a gap is named by nobody when the gap is closed",
        "barriers",
        "                self._barrier.put(source, number)\n",
        "                pass\n",
        "mixed",
    ),
    orders(
        "of two frontiers the lower numbers are taken",
        "order",
        "            union = append(union, entries[position] if entries[position] > key else key)\n",
        "            union = append(union, entries[position] if entries[position] < key else key)\n",
    ),
    orders(
        "weaker publications do not wait for a total one that is announced",
        "total",
        "        if total is None:\n            return arrival_of(lock)\n",
        "        if total is None:\n            return NOTHING\n",
        "mixed",
    ),
    orders(
        "a total publication names only what others had",
        "total",
        "        known = merged_frontiers(frontier_of(self._seen.sorted_items()), closed)\n",
        "        known = closed\n",
        "mixed",
    ),
    orders(
        "keys are granted to whoever is first in one of its lines",
        "lock_queue",
        "            if not self._of_key[key].admits(request):\n                return False\n"
        "        for key in request.keys:\n            self._of_key[key].waiting.popleft()\n",
        "            if self._of_key[key].admits(request):\n                break\n"
        "        else:\n            return False\n"
        "        for key in request.keys:\n            self._of_key[key].waiting.remove(request)\n",
        "total",
    ),
)

TREE = (
    tree(
        "what only some have got is dropped",
        "stability",
        "    return {origin: min(number, other[origin]) for origin, number in one.items() if origin in other}\n",
        "    return {origin: max(number, other[origin]) for origin, number in one.items() if origin in other}\n",
    ),
    tree(
        "what is here is dropped when others say how far all have got",
        "stability",
        "                    topic.forget(frontier)\n",
        "                    topic.forget(dict(topic.frontier))\n",
    ),
    tree(
        "nothing is kept for those who are away",
        "stability",
        "            self._spread_stable(Stable(self._reported, not view.current.absent))\n",
        "            self._spread_stable(Stable(self._reported, True))\n",
    ),
    tree(
        "over a new link the first item that is missing is left out",
        "topic",
        "        return [item for item in self.items if item.number > frontier.get(item.origin, 0)]\n",
        "        return [item for item in self.items if item.number > frontier.get(item.origin, 0) + 1]\n",
    ),
    tree(
        "a child that comes back is not sent what it missed",
        "streams",
        "            for item in topic.missing_at(join.frontier):\n"
        "                self._environment.send(child, item)\n",
        "            pass\n",
    ),
    tree(
        "one child that is closed is enough",
        "total_order",
        "        return all(lock.closed_in.get(child, 0) == epoch for child in topic.children)\n",
        "        return not topic.children or any(lock.closed_in.get(c, 0) == epoch for c in topic.children)\n",
    ),
    tree(
        "proposals that were lost with a root are not made again",
        "total_order",
        "            for publication in proposed:\n                self._hand_up(Proposal(publication, view.epoch))\n",
        "            pass\n",
    ),
    tree(
        "proposals overtake those that were lost on a way that broke",
        "total_order",
        "            if not self._is_cut_off:\n",
        "            if self._sequencers is not None:\n",
    ),
    tree(
        "what waits for a majority is delivered at once all the same",
        "publisher",
        "        if publication.order != TOTAL and self._options.needs_quorum(topic.name, publication.order):\n",
        "        if publication.order == NONE and self._options.needs_quorum(topic.name, publication.order):\n",
    ),
    tree(
        "a root does not lock again what earlier ones have locked",
        "total_order",
        "            for publication in sequencer.locked():\n                self._lock(topic, publication)\n",
        "",
    ),
    tree(
        "what two roots have completed is delivered twice",
        "total_order",
        "        if publication.sequence <= topic.completed.get(publication.source, 0):\n            # Two roots",
        "        if publication.sequence < 0:\n            # Two roots",
        "total",
    ),
    tree(
        "what waited for a key is forgotten when it opens",
        "publisher",
        "        for publication in topic.stop_waiting(keys):\n            self._publish_free(topic, publication)\n",
        "        topic.stop_waiting(keys)\n",
    ),
    tree(
        "half of the council is a majority",
        "quorum",
        "    return 2 * present > len(body) or (2 * present == len(body) and body[0] in members)\n",
        "    return 2 * present >= len(body)\n",
        "total",
    ),
    tree(
        "a broker that is lost still counts among those who carry a topic",
        "streams",
        "            topic.told.discard(int(child))\n            self._remove_link(topic, child)\n",
        "            topic.told.discard(int(child))\n",
    ),
    tree(
        "total publications are completed while somebody has no way to the root",
        "total_order",
        "        while view.is_complete and view.can_order:\n            publication = self._sequencer",
        "        while view.can_order:\n            publication = self._sequencer",
    ),
    tree(
        "of two roots the one with the later tree gives way",
        "root",
        "            return claim.overlay.is_later_than(view.overlay)\n        successors",
        "            return not claim.overlay.is_later_than(view.overlay)\n        successors",
    ),
    tree(
        "a root that gives way goes on as a root",
        "root",
        "            view.is_root = False\n            # Else this broker would",
        "            # Else this broker would",
    ),
    tree(
        "who was asked for a place and does not answer is waited for",
        "parent_search",
        "        else:\n            self._is_forced = True\n        self._be_patient()\n",
        "        else:\n            self._is_forced = True\n            self._be_patient()\n",
    ),
    tree(
        "any broker grants a place",
        "attachment",
        "        elif view.is_root:\n            self._answer(ParentAnswer(request.source, request.sequence, True,",
        "        elif view.me >= 0:\n            self._answer(ParentAnswer(request.source, request.sequence, True,",
    ),
    tree(
        "the last entry of the log that is wanted is not found",
        "log_recovery",
        "            if got < entry.number <= wanted[entry.origin]:\n",
        "            if got < entry.number < wanted[entry.origin]:\n",
    ),
    tree(
        "pieces of the log come back in the wrong order",
        "log_recovery",
        "    items = [item for piece in reversed(pieces) for item in piece]\n",
        "    items = [item for piece in reversed(pieces) for item in reversed(piece)]\n",
    ),
)

GOSSIP = (
    Mutant(
        "what was received beyond a gap is forgotten when the gap is closed",
        "gossip",
        "kernel/interval_set.py",
        "            if len(self._bounds) > 0:\n                self._close_gap()\n            return True\n",
        "            return True\n",
    ),
    gossip(
        "the first of what somebody asks for is not sent",
        "retransmit",
        "        if publication is not None:\n",
        "        if publication is not None and number != fetch.numbers[0]:\n",
    ),
    gossip(
        "nobody asks for what neighbours say they have",
        "recovery",
        "                stream.period_passed_missing()\n",
        "                pass\n",
    ),
    gossip(
        "nodes fall silent without comparing",
        "anti_entropy",
        "        has_asked = quiescence.has_compared and not self._pulses.is_in_doubt\n",
        "        has_asked = True\n",
    ),
    gossip(
        "pulses are lost",
        "anti_entropy",
        "        missed = self._pulses.missed(self._patience)\n",
        "        missed = NO_NODE\n",
    ),
    gossip(
        "a node that has left still delivers",
        "delivery",
        "                if not self.is_member:\n                    continue\n",
        "",
    ),
    gossip(
        "who has said nothing counts as having everything",
        "stream",
        "            floor = min(floor, self.has.get(peer, 0))\n",
        "            floor = min(floor, self.has.get(peer, floor))\n",
    ),
    gossip(
        "what a node had delivered does not precede what it publishes after it has come back",
        "delivery",
        "        return Departure(self.order.frontier(), self.order.barrier(), total)\n",
        "        return Departure(self.order.frontier(), vec[i64](), total)\n",
        "causal",
    ),
    gossip(
        "the timer of a topic that was silent is not set again",
        "quiescence",
        "        if not self.is_ticking:\n            self.is_ticking = True\n            self._reach.woke",
        "        if not self.is_ticking and self.questions == 0:\n            self.is_ticking = True\n"
        "            self._reach.woke",
    ),
    gossip(
        "a node that has lost a neighbour forgets as others do",
        "recovery",
        "        if self._keep_all_for > 0 or self._pulses.is_in_doubt:\n",
        "        if False:\n",
    ),
    gossip(
        "nobody is told of holes",
        "delivery",
        "                    self._report_lost(publication)\n",
        "                    pass\n",
        "total",
    ),
)

EPTO = (
    epto(
        "events with equal stamps have no order",
        "order",
        "        return mine < theirs if mine != theirs else self.name < other.name\n",
        "        return False\n",
    ),
    epto(
        "what comes too late is delivered all the same",
        "order",
        "            if last is not None and not last.is_before(event):\n",
        "            if last is not None and last is event:\n",
    ),
    epto(
        "a clock that is behind stamps below what was delivered",
        "order",
        "        self._latest = max(shown, last + 1, self._latest)\n",
        "        self._latest = shown\n",
    ),
    epto(
        "a logical clock does not follow what it sees",
        "order",
        "        if stamp > self._count:\n            self._count = stamp\n",
        "        pass\n",
    ),
    epto(
        "what was given up does not count as passed",
        "order",
        "        self.refuse(event)\n        self._last = event\n        self.last_stamp = event.stamp\n",
        "        self.refuse(event)\n",
    ),
    epto(
        "rounds stop while events wait",
        "dissemination",
        "        return len(self._in_ball) == 0 and self.ordering.count() == 0\n",
        "        return len(self._in_ball) == 0\n",
    ),
)

RETURNS = (
    tree(
        "a broker votes before its vote is on disk",
        "total_order",
        "            if self._durable.is_safe(VOTE, topic.name, name, lock.epoch):\n",
        "            if True:\n",
    ),
    tree(
        "the incarnation of a broker that returns does not rise",
        "durable_state",
        "0 if past is None else past.incarnation + 1\n",
        "0 if past is None else past.incarnation\n",
    ),
    tree(
        "a broker that returns counts its publications from the beginning",
        "durable_state",
        "0 if past is None else past.reserved\n",
        "0\n",
    ),
)

MUTANTS: tuple[Mutant, ...] = (*CUBE, *FAULTS, *ORDERS, *TREE, *RETURNS, *GOSSIP, *EPTO)
"""Those that campaigns find."""

HARMLESS: tuple[Mutant, ...] = (
    tree(
        "a round goes on though those below a lost child were not asked",
        "stability",
        "        # Those who were below the child have not been asked.\n        self._round = 0\n",
        "        self._reporters &= {int(left) for left in self._view.children}\n        self._report_if_complete()\n",
    ),
    tree(
        "the word of an earlier epoch counts",
        "total_order",
        "            lock.closed_in[sender] = closed.epoch\n",
        "            lock.closed_in[sender] = self._view.epoch\n",
    ),
    tree(
        "a root stops calling for those who are missing",
        "root",
        "        self._environment.set_timer(self._options.patience_ticks << self._claim_doublings, CLAIM)\n",
        "        pass\n",
    ),
    *HARMLESS_FAULTS,
)
"""Those that break no promise, because something else keeps it; ``docs/torture.md`` says what, for each."""
