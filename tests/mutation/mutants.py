"""Bugs to be planted in a copy of the product, one at a time: what campaigns must find.

Each is a change of one place of one module, of the kind that people make: a message forgotten, a number off by one, an
answer given too early, a timer lost. The place is found by its text, so that a change of the product that moves it does
no harm, and one that removes it is noticed: the bug can then be planted no more, and must be thought of anew.
"""

from __future__ import annotations

from tests.mutation.client_mutants import CLIENTS
from tests.mutation.fault_mutants import FAULTS, HARMLESS_FAULTS
from tests.mutation.membership_mutants import MEMBERSHIP
from tests.mutation.mutant import Mutant
from tests.mutation.space_mutants import SPACES
from tests.mutation.stream_mutants import STREAMS


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
        "a refused cluster is handed to no other node",
        "dissemination",
        "            count = self.send_to_cluster(topic, refusal.packet, cluster(self._me, sender))\n",
        "            count = 0\n",
    ),
    cube(
        "a node acknowledges its subtree before the subtree has the publication",
        "dissemination",
        "            topic.waves.open(publication_key(packet.source, packet.sequence), count, sender)\n        else:\n",
        "            pass\n        if True:\n",
    ),
    cube(
        "the end of a wave does not start the next one",
        "dissemination",
        "            topic.in_flight -= 1\n",
        "            pass\n",
    ),
    cube(
        "a late farewell ends the next subscription of the same node",
        "view",
        "        if known < 0 or known > counter:\n",
        "        if known < 0:\n",
    ),
    cube(
        "a newcomer forgets the first publication that came early",
        "membership",
        "        for publication in early:\n            self._delivery.take(topic, publication)\n",
        "        for publication in early[1:]:\n            self._delivery.take(topic, publication)\n",
    ),
    cube(
        "a newcomer counts no publication as past",
        "membership",
        "        topic.order.start_from(merged_frontiers(topic.inherited, survey.entries))\n",
        "        topic.order.start_from(topic.inherited)\n",
    ),
    cube(
        "after a return, publications do not follow earlier deliveries",
        "membership",
        "        successor.adopt_barrier(order.barrier())\n",
        "        pass\n",
        "causal",
    ),
    cube(
        "the home node forgets the frontiers of leavers",
        "directory",
        "        record.past = merged_frontiers(record.past, past)\n",
        "        record.past = past\n",
    ),
    cube(
        "the home node removes a member that has returned",
        "directory",
        "        if record.listed.get(node, counter + 1) < counter:\n            del record.listed[node]\n",
        "        record.listed.pop(node, None)\n",
    ),
    cube(
        "a delayed packet does not keep its wave open",
        "aggregation/dissemination",
        "            missing = forwarded.copies + (1 if forwarded.blocked > 0 else 0)\n",
        "            missing = forwarded.copies\n",
    ),
    cube(
        "only the first of several delayed packets is sent",
        "aggregation/dissemination",
        "                for forwarded in queue:\n                    forwarded.check_rest()\n",
        "                for forwarded in queue[:1]:\n                    forwarded.check_rest()\n",
    ),
    cube(
        "a total publication does not wait for publications of others",
        "total_order/ordering",
        "        closing.entries = merged_frontiers(closing.entries, message.entries)\n",
        "        pass\n",
        "total",
    ),
    cube(
        "a newcomer does not learn of locks",
        "membership",
        "        if len(survey.announced) > 0:\n",
        "        if len(survey.announced) < 0:\n",
        "mixed",
    ),
)

ORDERS = (
    orders(
        "an order delivers across a gap of one number",
        "causal",
        "        if past.get(publication.source) < publication.sequence - 1:\n",
        "        if past.get(publication.source) < publication.sequence - 2:\n",
    ),
    orders(
        "a publication waits for one dependency only",
        "causal",
        "            missing = self._missing(publication, waiting.checked)\n",
        "            missing = -1\n",
        "causal",
    ),
    orders(
        "a delivery releases only the first waiting publication",
        "causal",
        "        for waiting in queue:\n            publication = waiting.publication\n",
        "        for waiting in queue[:1]:\n            publication = waiting.publication\n",
    ),
    orders(
        "newer publications are pruned from a barrier",
        "barriers",
        "                    if barrier.get(source, -1) == key >> SOURCE_BITS:\n",
        "                    if barrier.get(source, -1) >= 0:\n",
        "causal",
    ),
    orders(
        "a publication that closes a gap releases only itself",
        "fifo",
        "            follower = self._held.pop(publication_key(source, sequence + 1), None)\n",
        "            follower = None\n",
        "fifo",
    ),
    orders(
        "a publication does not wait for single dependencies",
        "causal",
        "            if key >= 0 and not self._past.has(key & SOURCE_MASK, key >> SOURCE_BITS):\n",
        "            if key < 0:\n",
        "mixed",
    ),
    orders(
        "no barrier names a publication that was delivered beyond a gap",
        "barriers",
        "                self._settle().put(source, number)\n",
        "                self._settle()\n",
        "mixed",
    ),
    orders(
        "merged frontiers take the lower numbers",
        "order",
        "            union = append(union, entries[position] if entries[position] > key else key)\n",
        "            union = append(union, entries[position] if entries[position] < key else key)\n",
    ),
    orders(
        "weaker publications do not wait for an announced total one",
        "total",
        "        if total is None:\n            return arrival_of(lock)\n",
        "        if total is None:\n            return NOTHING\n",
        "mixed",
    ),
    orders(
        "a total publication depends only on publications of others",
        "total",
        "        known = merged_frontiers(self._started(), closed)\n",
        "        known = closed\n",
        "mixed",
    ),
    orders(
        "a lock is granted to a claim that is first for one of its keys",
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
        "a broker drops items that only some brokers have",
        "stability",
        "    return {origin: min(number, other[origin]) for origin, number in one.items() if origin in other}\n",
        "    return {origin: max(number, other[origin]) for origin, number in one.items() if origin in other}\n",
    ),
    tree(
        "a broker drops its own items by the frontier of others",
        "stability",
        "                    topic.forget(frontier)\n",
        "                    topic.forget(dict(topic.frontier))\n",
    ),
    tree(
        "brokers keep nothing for lost brokers",
        "stability",
        "            self._spread_stable(Stable(self._reported, not view.current.absent))\n",
        "            self._spread_stable(Stable(self._reported, True))\n",
    ),
    tree(
        "the first missing item is not sent over a new link",
        "topic",
        "        return [item for item in self.items if item.number > frontier.get(item.origin, 0)]\n",
        "        return [item for item in self.items if item.number > frontier.get(item.origin, 0) + 1]\n",
    ),
    tree(
        "a returned child does not receive missed items",
        "streams",
        " if join.frontier is None else topic.missing_at(join.frontier):\n",
        " if join.frontier is None else ():\n",
    ),
    tree(
        "a lock counts as closed after one child",
        "total_order",
        "        return all(lock.closed_in.get(child, 0) == epoch for child in topic.children)\n",
        "        return not topic.children or any(lock.closed_in.get(c, 0) == epoch for c in topic.children)\n",
    ),
    tree(
        "proposals that were lost with a root are not repeated",
        "total_order",
        "            for publication in proposed:\n                self._hand_up(Proposal(publication, view.epoch))\n",
        "            pass\n",
    ),
    tree(
        "proposals overtake earlier ones that were lost on a broken link",
        "total_order",
        "            if not self._is_cut_off:\n",
        "            if self._sequencers is not None:\n",
    ),
    tree(
        "a publication that needs a majority is delivered at once",
        "publisher",
        "        if publication.order != TOTAL and self._options.needs_quorum(topic.name, publication.order):\n",
        "        if publication.order == NONE and self._options.needs_quorum(topic.name, publication.order):\n",
    ),
    tree(
        "a new root does not renew the locks of earlier roots",
        "total_order",
        "            for publication in sequencer.locked():\n                self._lock(topic, publication)\n",
        "",
    ),
    tree(
        "a publication that two roots completed is delivered twice",
        "total_order",
        "        if publication.sequence <= topic.completed.get(publication.source, 0):\n            # Two roots",
        "        if publication.sequence < 0:\n            # Two roots",
        "total",
    ),
    tree(
        "publications that wait for a key are forgotten when it opens",
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
        "a lost broker still counts as a carrier of a topic",
        "streams",
        "            topic.told.discard(int(child))\n            self._remove_link(topic, child)\n",
        "            topic.told.discard(int(child))\n",
    ),
    tree(
        "total publications complete while a broker has no way to the root",
        "total_order",
        "        while view.is_complete and view.can_order:\n            publication = self._sequencer",
        "        while view.can_order:\n            publication = self._sequencer",
    ),
    tree(
        "the root with the later tree gives way",
        "root",
        "            return claim.overlay.is_later_than(view.overlay)\n        successors",
        "            return not claim.overlay.is_later_than(view.overlay)\n        successors",
    ),
    tree(
        "a root that gives way continues as a root",
        "root",
        "            view.is_root = False\n            # Otherwise this broker would",
        "            # Otherwise this broker would",
    ),
    tree(
        "an orphan waits for ever for a silent broker",
        "parent_search",
        "        else:\n            self._is_forced = True\n        self._be_patient()\n",
        "        else:\n            self._is_forced = True\n            self._be_patient()\n",
    ),
    tree(
        "any broker grants a place",
        "attachment",
        "        elif view.is_root:\n            self._answer(ParentResponse(request.source, request.sequence, True,",
        "        elif view.me >= 0:\n            self._answer(ParentResponse(request.source, request.sequence, True,",
    ),
    tree(
        "the last requested log entry is not found",
        "log_recovery",
        "            if got < entry.number <= wanted[entry.origin]:\n",
        "            if got < entry.number < wanted[entry.origin]:\n",
    ),
    tree(
        "pieces of the log are read in the wrong order",
        "log_recovery",
        "    items = [item for piece in reversed(pieces) for item in piece]\n",
        "    items = [item for piece in reversed(pieces) for item in reversed(piece)]\n",
    ),
)

GOSSIP = (
    Mutant(
        "numbers beyond a gap are forgotten when the gap closes",
        "gossip",
        "kernel/interval_set.py",
        "            if len(self._bounds) > 0:\n                self._close_gap()\n            return True\n",
        "            return True\n",
    ),
    gossip(
        "the first requested publication is not sent",
        "retransmit",
        "        if publication is not None:\n",
        "        if publication is not None and number != fetch.numbers[0]:\n",
    ),
    gossip(
        "nodes do not request publications that neighbours announce",
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
        "a silent neighbour counts as having everything",
        "stream",
        "            floor = min(floor, self.has.get(peer, 0))\n",
        "            floor = min(floor, self.has.get(peer, floor))\n",
    ),
    gossip(
        "after a return, publications do not follow earlier deliveries",
        "delivery",
        "        return Departure(self.order.frontier(), self.order.barrier(), total)\n",
        "        return Departure(self.order.frontier(), vec[i64](), total)\n",
        "causal",
    ),
    gossip(
        "the timer of a silent topic is not set again",
        "quiescence",
        "        if not self.is_ticking:\n            self.is_ticking = True\n            self._reach.woke",
        "        if not self.is_ticking and self.questions == 0:\n            self.is_ticking = True\n"
        "            self._reach.woke",
    ),
    gossip(
        "a node that has lost a neighbour forgets as early as others",
        "recovery",
        "        if self._keep_all_for > 0 or self._pulses.is_in_doubt:\n",
        "        if False:\n",
    ),
    gossip(
        "holes are not reported",
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
        "an event that comes too late is delivered",
        "order",
        "            if last is not None and not last.is_before(event):\n",
        "            if last is not None and last is event:\n",
    ),
    epto(
        "a slow clock gives stamps below delivered ones",
        "order",
        "        self._latest = max(shown, last + 1, self._latest)\n",
        "        self._latest = shown\n",
    ),
    epto(
        "a logical clock does not follow received stamps",
        "order",
        "        if stamp > self._count:\n            self._count = stamp\n",
        "        pass\n",
    ),
    epto(
        "an event that was given up does not count as past",
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
        "a returned broker keeps its old incarnation",
        "durable_state",
        "0 if past is None else past.incarnation + 1\n",
        "0 if past is None else past.incarnation\n",
    ),
    tree(
        "a returned broker numbers its publications from the beginning",
        "durable_state",
        "0 if past is None else past.reserved\n",
        "0\n",
    ),
)

WHOLE_NODES = (*MEMBERSHIP, *CLIENTS, *STREAMS)


MUTANTS: tuple[Mutant, ...] = (*CUBE, *FAULTS, *ORDERS, *TREE, *RETURNS, *GOSSIP, *EPTO, *SPACES, *WHOLE_NODES)
"""Those that campaigns find."""

HARMLESS: tuple[Mutant, ...] = (
    tree(
        "a round continues although the brokers below a lost child were not asked",
        "stability",
        "        # The brokers below the child have not been asked.\n        self._round = 0\n",
        "        self._reporters &= {int(left) for left in self._view.children}\n        self._report_if_complete()\n",
    ),
    tree(
        "a report of an earlier epoch counts",
        "total_order",
        "            lock.closed_in[sender] = closed.epoch\n",
        "            lock.closed_in[sender] = self._view.epoch\n",
    ),
    tree(
        "a root stops calling for missing brokers",
        "root",
        "        self._environment.set_timer(self._options.patience_ticks << self._claim_doublings, CLAIM)\n",
        "        pass\n",
    ),
    *HARMLESS_FAULTS,
)
"""Those that break no promise, because something else keeps it; ``docs/planted-bugs.md`` says what, for each."""
