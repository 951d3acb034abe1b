"""Bugs in what only live nodes have: subscriptions that lag, and what clients are told. See ``mutants.py``."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

WITH_LOGS = "cube"
WITHOUT_LOGS = "cube --without-logs"

LIVE = (
    Mutant(
        "dropped messages of a subscription are not counted",
        WITH_LOGS,
        "api/subscription.py",
        "        self.dropped += batch.count\n",
        "        pass\n",
    ),
    Mutant(
        "clients do not learn of dropped messages",
        WITH_LOGS,
        "node/gateway/client_relay.py",
        "        if self.subscription.dropped_batches:\n",
        "        if self.subscription.dropped_batches is None:\n",
    ),
    Mutant(
        "a slow subscription skips the batch that did not fit",
        WITH_LOGS,
        "api/subscription.py",
        "            self._read_from(topic, batch.first_offset)\n            return False\n",
        "            self._read_from(topic, batch.end_offset)\n            return False\n",
    ),
    Mutant(
        "publishers wait for a subscription that has ended",
        WITHOUT_LOGS,
        "api/topic_state.py",
        "each is not sink])\n        return self.caught_up(sink)\n",
        "each is not sink])\n        return False\n",
    ),
)
"""Crowds of live campaigns find these (``tests.mutation.live_hunt``); the fabric has the options of the campaign."""
