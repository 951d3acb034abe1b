"""``antiphon torture --hostile``: small campaigns; ``docs/hostile.md`` has the figures of large ones."""

from __future__ import annotations

import json

from antiphon.torture.hostile.tenant_process import LIAR
from antiphon.torture.hostile.tenants import ATTACKS
from tests.cli.conftest import Command


def test_nodes_stay_of_use_to_honest_clients_under_attack(command: Command) -> None:
    called = command("torture", "--hostile", "--fabric", "gossip", "--inputs", 600, "--seed", 5, "--json")
    found = json.loads(called.said)
    assert (called.code, found["violations"], found["inputs"]) == (0, [], 600)
    assert found["published"] == found["received"] > 0
    # One input in four goes to an MQTT door, which refuses for itself.
    assert found["refused_connections"] > 200
    assert {"bytes", "greeting", "client", "peer", "cut", "tls", "cleartext"} <= set(found["kinds"])
    assert sum(kind.startswith("mqtt, ") for kind in found["kinds"]) == 6


def test_tenants_and_a_lying_node_harm_nobody(command: Command) -> None:
    """All attacks are drawn. On a busy machine honest clients may wait for the processor, and for that alone."""
    called = command("torture", "--hostile", "--minutes", 0.25, "--seed", 3, "--json")
    found = json.loads(called.said)
    broken = [each for each in found["violations"] if "at the 99th percentile" not in each]
    assert broken == [] and called.code == (1 if found["violations"] else 0)
    assert found["published"] == found["received"] > 0
    # Each attack is over after a few seconds; on a busy machine some have not had their turn.
    assert LIAR in found["attacks"] and len({*ATTACKS, LIAR} - set(found["attacks"])) <= 4
    assert len({"connections", "series", "topics", "policies"} & set(found["quota_hits"])) >= 2
    assert found["refusals"].get("policy block", {}).keys() <= {"quota policies", "quota connections"}
    assert found["lies"] > 0 and found["probes"] > 0
