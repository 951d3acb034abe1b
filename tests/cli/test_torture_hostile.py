"""``antiphon torture --hostile``: a small campaign; ``docs/hostile.md`` has the figures of a large one."""

from __future__ import annotations

import json

from tests.cli.conftest import Command


def test_nodes_stay_of_use_to_honest_clients_under_attack(command: Command) -> None:
    called = command("torture", "--hostile", "--fabric", "gossip", "--inputs", 600, "--seed", 5, "--json")
    found = json.loads(called.said)
    assert (called.code, found["violations"], found["inputs"]) == (0, [], 600)
    assert found["published"] == found["received"] > 0
    assert found["refused_connections"] > 300
    assert {"bytes", "greeting", "client", "peer", "cut", "tls", "cleartext"} == set(found["kinds"])
