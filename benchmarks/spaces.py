"""How many bytes the headers of a space take: nodes on a cube that publish on many topics with causal order across all.

    python benchmarks/spaces.py [--nodes N] [--topics N] [--members N] [--gap TICKS] [--acknowledge TICKS]

A message takes 100 ticks on average. Each topic has some nodes as members, drawn at random; a random member of a random
topic publishes every ``gap`` ticks on average. The figures are those of all publications after the first fifth.
"""

from __future__ import annotations

import argparse
import statistics

from antiphon.kernel.randomness import RandomStream
from antiphon.simulator.scenario.run import Simulation
from antiphon.simulator.scenario.scenario import NetworkTable, NormalLaw, RateWorkload, Scenario, TopicsTable
from antiphon.spaces.header import HeaderPlace, decode_frontier, encode_frontier

MEMBER_STREAM = 50


FOUND: list[int] = []
"""The size of each header."""


class Sizes(HeaderPlace):
    """Notes the size of each header, as live nodes would write it: numbers of their topics take 9 bytes."""

    def embed(self, payload: bytes, header: bytes) -> bytes:
        named = decode_frontier(header)
        FOUND.append(len(encode_frontier({(1 << 61) + topic: entries for topic, entries in named.items()})))
        return super().embed(payload, header)


def scenario_of(asked: argparse.Namespace) -> Scenario:
    """Topics with drawn members, all of one space."""
    random = RandomStream(1, MEMBER_STREAM)
    members: list[list[int] | str] = []
    for _ in range(asked.topics):
        drawn: set[int] = set()
        while len(drawn) < asked.members:
            drawn.add(int(random.below(asked.nodes)))
        members.append(sorted(drawn))
    return Scenario(
        nodes=asked.nodes,
        protocol="vcube-ps",
        network=NetworkTable(delay=NormalLaw(mean=100, deviation=20), transmission=0, processing=0),
        topics=TopicsTable(
            count=asked.topics,
            members=members,
            spaces=[list(range(asked.topics))],
            acknowledge=asked.acknowledge,
        ),
        workload=RateWorkload(
            topic="any", mean_gap=float(asked.gap), until=asked.gap * asked.publications, payload_bytes=100
        ),
    )


def main() -> None:
    """Run once and print."""
    parser = argparse.ArgumentParser(description="The size of the headers of a space.")
    for name, default in (
        ("nodes", 100),
        ("topics", 100),
        ("members", 10),
        ("gap", 20),
        ("acknowledge", 300),
        ("publications", 2000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    from antiphon.spaces import process

    process.HeaderPlace = Sizes  # type: ignore[misc]
    simulation = Simulation(scenario_of(asked))
    simulation.run()
    sizes = sorted(FOUND[len(FOUND) // 5 :])
    last = len(sizes) - 1
    messages = simulation.engine.sent / len(FOUND)
    print(f"{len(FOUND)} publications, {messages:.0f} messages for each; bytes of a header: ", end="")
    print(f"median {statistics.median(sizes):.0f}, nine of ten at most {sizes[last * 9 // 10]}, largest {sizes[-1]}")


if __name__ == "__main__":
    main()
