"""What holds each attack of a tenant: the mend, the change that switches it off, and the test that must fail then.

    python -m tests.mutation.mends             # switch all of them off, one at a time, and print the table
    python -m tests.mutation.mends --only http # those whose row, mend or module holds a word

The table is in ``docs/hostile.md``. A copy of the sources in a folder of its own has one mend less and runs uncompiled,
so nothing in the product knows of this.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.hunt import ROOT, SOURCES

PATIENCE_SECONDS = 180


@dataclass(frozen=True)
class Mend:
    """One mend: ``old`` is what holds an attack, ``new`` the same without it; ``breaks`` says what happens then."""

    row: str
    mend: str
    module: str
    old: str
    new: str
    test: str
    breaks: str


@dataclass(frozen=True)
class Outcome:
    """How a test ended without a mend."""

    code: int
    said: str
    is_stuck: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the test ran and failed, or never ended; a test that cannot be collected says nothing."""
        if self.is_stuck:
            return True
        return self.code == 1 and "not compiled" in self.said and " failed" in self.said.splitlines()[-1]


MENDS = (
    Mend(
        "stalled frames",
        "budgets of peers and of clients are apart",
        "transport/frame_budget.py",
        "        pool = self._clients if connection.is_client else self._peers\n",
        "        pool = self._peers\n",
        "transport/test_frame_budget.py::test_clients_take_nothing_from_the_budget_of_peers",
        "frames of clients end links between nodes",
    ),
    Mend(
        "stalled frames",
        "the identity with the most bytes gives its stalest frame up",
        "transport/frame_budget.py",
        "            victim = pool.to_give_up(connection, size, self._last_at, now)\n",
        "            victim = None\n",
        "node/test_tenants.py::test_stalled_frames_of_a_tenant_harm_nobody_and_end",
        "an honest client with 600 kB messages is cut off",
    ),
    Mend(
        "stalled frames",
        "a frame without progress ends",
        "transport/frame_budget.py",
        "        if now - progress.slow_since > self._frame_seconds:\n",
        "        if False:\n",
        "transport/test_frame_budget.py::test_a_frame_that_stops_is_cut_off_however_much_of_it_has_come",
        "a stalled frame keeps its memory for ever",
    ),
    Mend(
        "log positions",
        "the number of positions has a bound",
        "storage/log_server.py",
        "        if positions > POSITIONS_AT_MOST:\n",
        "        if False:\n",
        "node/test_tenants.py::test_a_request_for_millions_of_log_positions_is_refused",
        "4 million positions are looked up",
    ),
    Mend(
        "log positions",
        "a request is cut into steps",
        "storage/log_server.py",
        "POSITIONS_PER_STEP: Final = 64\n",
        "POSITIONS_PER_STEP: Final = 1 << 30\n",
        "node/test_tenants.py::test_requests_for_log_positions_wait_for_nobody_and_end_with_their_connection",
        "the log is read for one request, and others wait",
    ),
    Mend(
        "resume lists",
        "requests that are no batch are at most 4 MB long",
        "node/gateway/request_limits.py",
        "        if len(frame) > REQUEST_BYTES_AT_MOST:\n",
        "        if False:\n",
        "node/test_tenants.py::test_a_request_that_is_longer_than_any_honest_one_ends_its_connection",
        "a frame of 15 MB is decoded into 166 MB",
    ),
    Mend(
        "resume lists",
        "the lists of one client have a bound",
        "node/gateway/request_limits.py",
        "        if self._resume_bytes + size_bytes > RESUME_BYTES_AT_MOST:\n",
        "        if False:\n",
        "node/test_tenants.py::test_lists_of_what_was_seen_are_kept_packed_and_have_a_bound",
        "a client has a node keep as many lists as it likes",
    ),
    Mend(
        "junk series",
        "an identity with its share of the lanes forgets its own",
        "sessions/writers.py",
        "        if len(self._of_owner.get(owner, ())) * owners < LANES_AT_MOST:\n",
        "        if True:\n            owner = owner_of(next(iter(self._of.values())).writer)\n        if False:\n",
        "sessions/test_writers.py::test_junk_of_one_identity_pushes_out_nothing_of_another",
        "the payment of another tenant is taken twice",
    ),
    Mend(
        "junk series",
        "what was forgotten is refused",
        "sessions/writers.py",
        "        return author.number <= self._forgotten_lanes.up_to(owner_of(author.writer), topic, author.client)\n",
        "        return False\n",
        "sessions/test_writers.py::test_what_is_forgotten_is_refused_and_not_delivered_again",
        "a forgotten batch is delivered again",
    ),
    Mend(
        "junk series",
        "quota `series`",
        "node/gateway/accounts.py",
        "        if self.quotas.series is not None and (topic, lane) not in self._series:\n",
        "        if False:\n",
        "node/test_tenants.py::test_series_of_writers_have_a_quota_and_others_write_on",
        "a client begins series without end",
    ),
    Mend(
        "new topics",
        "quota `topics`, over all connections",
        "node/gateway/accounts.py",
        "        if self.quotas.topics is not None and topic not in self.topics:\n",
        "        if False:\n",
        "node/test_quotas.py::test_topics_are_counted_also_over_connections_that_have_ended",
        "a client that connects again begins new topics",
    ),
    Mend(
        "new topics",
        "the last topics are for identities that have begun few",
        "node/gateway/accounts.py",
        "        if known >= maximum - reserved and self.begun_topics * max(1, self._owners.of_topics) >= reserved:\n",
        "        if False:\n",
        "node/test_quotas.py::test_an_identity_that_begins_topics_without_end_leaves_some_for_others",
        "without a quota one client takes all topics of a node",
    ),
    Mend(
        "unread subscriptions",
        "the objects of a waiting batch count",
        "api/waiting.py",
        "ENTRY_BYTES: Final = 512\n",
        "ENTRY_BYTES: Final = 0\n",
        "node/test_tenants.py::test_a_quota_of_memory_ends_subscriptions_that_are_never_read_and_counts_their_objects",
        "empty messages take memory and count nothing",
    ),
    Mend(
        "policy block",
        "quota `policies`",
        "node/gateway/accounts.py",
        "        if quotas.policy is None and quotas.policies is not None and policy not in quotas.policies:\n",
        "        if False:\n",
        "node/test_quotas.py::test_policies_that_an_operator_does_not_allow_are_refused",
        "a client may hold publishers up",
    ),
    Mend(
        "policy block",
        "quota `policy` wins over what a client asks for",
        "node/gateway/accounts.py",
        "        return policy if quotas.policy is None else quotas.policy\n",
        "        return policy\n",
        "node/test_quotas.py::test_the_policy_of_the_operator_wins_over_what_a_client_asks_for",
        "a client that asks to block holds publishers up",
    ),
    Mend(
        "policy block",
        "quota `block_seconds`",
        "node/gateway/client_relay.py",
        "        if seconds is not None:\n            self._patience",
        "        if False:\n            self._patience",
        "node/test_quotas.py::test_a_client_that_never_reads_holds_others_up_no_longer_than_it_may",
        "publishers wait for a client that never reads",
    ),
    Mend(
        "follow requests",
        "an identity has turns of the event loop",
        "transport/turn_share.py",
        "TURN_SECONDS: Final = 0.005\n",
        "TURN_SECONDS: Final = 1000.0\n",
        "node/test_turns.py::test_others_have_their_turn_among_thousands_of_small_frames",
        "thousands of frames are handled before anybody else's",
    ),
    Mend(
        "follow requests",
        "lists to follow count towards the quota `memory`",
        "sessions/resume.py",
        "            self._port.check_list(lists.size_bytes)\n",
        "            pass\n",
        "node/test_tenants.py::test_requests_to_follow_count_towards_the_memory_of_their_identity",
        "40 requests take 70 MB for half a minute",
    ),
    Mend(
        "empty messages",
        "a batch has a bound on its messages before it is decoded",
        "api/columns.py",
        "Count = msgspec.Meta(max_length=BATCH_MESSAGES_AT_MOST)\n",
        "Count = msgspec.Meta(max_length=1 << 31)\n",
        "node/test_tenants.py::test_millions_of_empty_messages_in_one_batch_are_refused_to_their_publisher",
        "3 million messages in 6 MB are published",
    ),
    Mend(
        "client places",
        "quota `connections`",
        "node/gateway/accounts.py",
        '"connections", self.connections, self.quotas.connections, ',
        '"connections", self.connections, None, ',
        "node/test_quotas.py::test_connections_of_one_identity_are_counted_and_those_of_others_are_not",
        "one token takes all places",
    ),
    Mend(
        "metrics requests",
        "the figures of 1,000 topics are shown",
        "node/status.py",
        "    if len(topics) <= TOPICS_SHOWN:\n",
        "    if True:\n",
        "node/test_status.py::test_figures_of_many_topics_are_bounded_and_the_loop_goes_on",
        "each topic is a dozen series more",
    ),
    Mend(
        "metrics requests",
        "metrics are written in a thread",
        "node/status.py",
        "await asyncio.to_thread(metrics_text, self._status.figures())",
        "metrics_text(self._status.figures())",
        "node/test_status.py::test_metrics_are_written_outside_of_the_event_loop",
        "the event loop stands still while metrics are written",
    ),
    Mend(
        "silent http",
        "the connection that was silent for longest makes room",
        "node/status.py",
        "            oldest = next(iter(self._silent), writer)\n",
        "            oldest = writer\n",
        "node/test_status.py::test_silent_connections_make_room_for_those_that_ask",
        "health probes are refused",
    ),
    Mend(
        "log retention",
        "space that is free goes back to the file system",
        "storage/space.py",
        "            self._store.give_back(min(STEP_PAGES, free - spare))\n            return True\n",
        "            return False\n",
        "storage/test_space.py::test_removed_batches_take_no_space",
        "removed messages stay on the disk",
    ),
    Mend(
        "log retention",
        "a jump of the clock counts when it has lasted",
        "storage/trusted_clock.py",
        "        self._believed_us = min(clock_us, self._believed_us + passed_us)\n",
        "        self._believed_us = clock_us\n",
        "storage/test_trusted_clock.py::test_a_jump_forward_counts_when_it_has_lasted_for_an_hour",
        "a clock that is ahead for a while removes the log",
    ),
    Mend(
        "log retention",
        "times of the future are corrected",
        "storage/log.py",
        "            if settled_us is not None and topic.latest_at_us > settled_us + JUMP_US:\n",
        "            if False:\n",
        "storage/test_trusted_clock.py::test_the_search_by_time_is_right_after_a_jump_of_the_clock",
        "the search by time finds the wrong messages",
    ),
    Mend(
        "data directory",
        "the files of the log are for their owner",
        "storage/directory.py",
        "PRIVATE_FILE: Final = 0o600\n",
        "PRIVATE_FILE: Final = 0o644\n",
        "storage/test_private.py::test_a_new_log_is_private_while_it_is_open_and_afterwards",
        "everybody on the machine reads all messages",
    ),
    Mend(
        "certificates",
        "a node whose own one has expired says so",
        "transport/certificate_watch.py",
        "        if self.days_left() <= 0:\n",
        "        if False:\n",
        "transport/test_certificate_watch.py::test_a_node_whose_certificate_expires_says_so",
        "the node is healthy and nobody accepts it",
    ),
    Mend(
        "certificates",
        "holders of revoked ones are disconnected",
        "transport/certificate_watch.py",
        "        if identity.serial in self._revoked:\n",
        "        if False:\n",
        "transport/test_certificate_watch.py::test_a_client_whose_certificate_is_revoked_is_disconnected_and_stays_out",
        "a withdrawn client goes on",
    ),
    Mend(
        "certificates",
        "holders of expired ones are disconnected",
        "transport/certificate_watch.py",
        "        if identity.expires_at <= self._clock():\n",
        "        if False:\n",
        "transport/test_certificate_watch.py::test_a_client_whose_certificate_expires_is_disconnected",
        "a client stays connected for ever",
    ),
    Mend(
        "lying node",
        "a message that fails costs its sender the connection",
        "transport/incoming.py",
        "        self._receiver.unhandled(error)\n        self.refuse(",
        "        raise error\n        self.refuse(",
        "node/test_lying_peers.py::test_a_message_that_fails_where_it_is_handled_costs_its_sender_the_connection",
        "the process of each node that hears it ends",
    ),
    Mend(
        "lying node",
        "numbers are given up in slices",
        "fabrics/cube/repair/anti_entropy.py",
        "GIVEN_UP_AT_ONCE: Final[i64] = 1 << 14\n",
        "GIVEN_UP_AT_ONCE: Final[i64] = 1 << 50\n",
        "node/test_lying_peers.py::test_no_lie_about_numbers_takes_the_processor_of_a_node",
        "the node gives a trillion numbers up",
    ),
    Mend(
        "names and members",
        "members are named to clients that may publish",
        "node/gateway/client_session.py",
        "        topics = [topic for topic in message.topics if self.holder.rights.may_publish(topic)]\n",
        "        topics = message.topics\n",
        "node/test_rights.py::test_members_of_a_topic_are_named_only_to_clients_that_may_publish_on_it",
        "a client learns who is a member of a forbidden topic",
    ),
    Mend(
        "names and members",
        "the certificate of a node is no client",
        "node/acl.py",
        "        if identity.role != CLIENT:\n",
        "        if False:\n",
        "node/test_rights.py::test_the_certificate_of_a_node_is_no_client_of_the_same_name",
        "a node's certificate has the rights of a client",
    ),
    Mend(
        "names and members",
        "names of clients are words",
        "node/acl.py",
        "    if not NAME_PATTERN.fullmatch(name):\n",
        "    if False:\n",
        "node/test_rights.py::test_what_is_wrong_with_a_file_is_said_without_its_secrets",
        "a client is called shop/1, or nothing",
    ),
    Mend(
        "waiting readers",
        "a deadline is let go with its reader",
        "streams/service/history_requests.py",
        "            cancel()\n",
        "            pass\n",
        "streams/test_stream_tenants.py::test_readers_that_wait_have_a_bound_and_end_with_their_connection",
        "what a client has not read stays for a minute after it has gone",
    ),
    Mend(
        "waiting readers",
        "a client has 256 of them",
        "streams/service/open_waits.py",
        "        if len(waits) >= self._at_most:\n",
        "        if False:\n",
        "streams/test_stream_tenants.py::test_readers_that_wait_have_a_bound_and_end_with_their_connection",
        "thousands of readers are answered for each message",
    ),
)
"""By the rows of attacks in ``docs/hostile.md``."""


def switch_off(mend: Mend, package: Path) -> None:
    """Take a mend out of a copy of the product."""
    path = package / mend.module
    source = path.read_text(encoding="utf-8")
    assert source.count(mend.old) == 1, f"{mend.mend!r} is {source.count(mend.old)} times in {mend.module}"
    path.write_text(source.replace(mend.old, mend.new), encoding="utf-8")


def try_without(mend: Mend, folder: Path) -> Outcome:
    """Run the test of a mend against a copy of the product that lacks it."""
    package = folder / "antiphon"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    switch_off(mend, package)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", f"tests/{mend.test}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT / "research")))},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        # A node whose event loop stands still ends no test.
        return Outcome(1, "", is_stuck=True)
    return Outcome(done.returncode, done.stdout + done.stderr)


def table() -> list[str]:
    """The rows of the table in the documentation."""
    return [
        f"| {mend.row} | {mend.mend} | `{mend.module.removesuffix('.py')}` | `{mend.test}` | {mend.breaks} |"
        for mend in MENDS
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Switch mends off and print the table; 1 if a test does not notice."""
    parser = argparse.ArgumentParser(description="Switch mends off, one at a time, and run the test of each.")
    parser.add_argument("--only", default="", help="those whose row, mend or module holds this")
    asked = parser.parse_args(arguments)
    unnoticed = 0
    for mend, row in zip(MENDS, table(), strict=True):
        if asked.only not in f"{mend.row} {mend.mend} {mend.module}":
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = try_without(mend, Path(folder))
        unnoticed += not outcome.has_failed
        print(row if outcome.has_failed else f"NOT NOTICED {row}\n{outcome.said}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
