"""Running scenarios: what each part of a file does to a run, read off the trace."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.kernel.errors import PeerError, ScenarioError, UsageError
from antiphon.simulator.scenario import run
from antiphon.simulator.scenario.file import load_scenario, parse_scenario
from antiphon.simulator.scenario.run import Simulation, run_scenario
from antiphon.simulator.scenario.scenario import PublishTable, Scenario
from antiphon.trace.store import MemoryTrace, about_trace, read_trace

EXAMPLES = {path.stem: path for path in (Path(__file__).parents[3] / "examples" / "scenarios").glob("*.toml")}


class Run:
    """A finished run with all that was traced."""

    def __init__(self, text: str, nodes: int = 8, order: str = "none") -> None:
        trace = MemoryTrace("everything")
        simulation = Simulation(parse_scenario(f'nodes = {nodes}\norder = "{order}"\n{text}'), trace.recorder)
        self.result = simulation.result(simulation.run(), 1.0)
        self.rows: list[dict[str, Any]] = trace.table().to_pylist()

    def of(self, event: str, **wanted: object) -> list[dict[str, Any]]:
        return [
            row
            for row in self.rows
            if row["event"] == event and all(row[key] == value for key, value in wanted.items())
        ]

    def delivered_at(self, source: int | None = None, sequence: int | None = None) -> list[int]:
        """The nodes that delivered a publication (all publications if none is named), in the order of time."""
        return [
            row["node"]
            for row in self.of("deliver")
            if source in (None, row["source"]) and sequence in (None, row["sequence"])
        ]


def publish(at: int, node: int) -> str:
    return f"[[publish]]\nat = {at}\nnode = {node}\n"


def fault(at: int, kind: str, rest: str) -> str:
    return f'[[fault]]\nat = {at}\nkind = "{kind}"\n{rest}\n'


SLOW = "[network]\ntransmission = 10\n"
"""Node 0 of eight then transmits to 1, 2 and 4 until 10, 20 and 30."""


# Faults.


def test_a_crash_loses_what_has_not_been_transmitted() -> None:
    ran = Run(SLOW + publish(0, 0) + fault(15, "crash", "node = 0"))
    assert ran.delivered_at() == [0, 1]
    assert [(row["node"], row["peer"], row["reason"]) for row in ran.of("drop", message="Ordered")] == [
        (2, 0, "sender down"),
        (4, 0, "sender down"),
    ]
    assert [(row["time"], row["node"]) for row in ran.of("crash")] == [(15, 0)]


def test_a_crash_loses_what_arrives_and_with_it_the_subtree() -> None:
    ran = Run(publish(0, 0) + fault(50, "crash", "node = 4"))
    assert sorted(ran.delivered_at()) == [0, 1, 2, 3]
    assert [(row["node"], row["reason"]) for row in ran.of("drop")] == [(4, "receiver down")]


def test_a_crash_that_is_never_noticed_is_never_avoided() -> None:
    ran = Run(publish(100_000, 0) + fault(0, "crash", "node = 4"))
    assert sorted(ran.delivered_at()) == [0, 1, 2, 3]


def test_a_noticed_crash_is_avoided_from_then_on() -> None:
    ran = Run(publish(599, 0) + publish(600, 0) + fault(100, "crash", "node = 4\ndetected_after = 500"))
    assert sorted(ran.delivered_at(sequence=1)) == [0, 1, 2, 3]
    assert sorted(ran.delivered_at(sequence=2)) == [0, 1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize("back", [300, 600])
def test_a_crash_is_not_noticed_if_the_node_is_back_in_time(back: int) -> None:
    ran = Run(
        publish(1000, 0)
        + fault(100, "crash", "node = 4\ndetected_after = 500")
        + fault(back, "restart", "node = 4")
        # A second crash that is not noticed, so that only the first could have taken the node out of the trees.
        + fault(700, "crash", "node = 4")
        + fault(800, "restart", "node = 4")
    )
    assert sorted(ran.delivered_at()) == list(range(8))


def test_a_restarted_node_is_in_the_trees_again_and_has_forgotten_everything() -> None:
    ran = Run(
        publish(0, 4)
        + fault(500, "crash", "node = 4\ndetected_after = 0")
        + publish(600, 0)
        + fault(1000, "restart", "node = 4")
        + publish(1100, 0)
        + publish(2000, 4),
        order="best-effort",
    )
    assert sorted(ran.delivered_at(source=0, sequence=1)) == [0, 1, 2, 3, 5, 6, 7]
    assert sorted(ran.delivered_at(source=0, sequence=2)) == list(range(8))
    assert [row["sequence"] for row in ran.of("publish", node=4)] == [1, 1]
    assert [(row["time"], row["node"]) for row in ran.of("restart")] == [(1000, 4)]


def test_a_paused_node_delivers_late_but_loses_nothing() -> None:
    ran = Run(publish(0, 0) + fault(50, "pause", "node = 1") + fault(500, "resume", "node = 1"), nodes=2)
    assert [(row["node"], row["time"]) for row in ran.of("deliver")] == [(0, 0), (1, 500)]
    assert ran.result.dropped == 0
    assert [row["event"] for row in ran.rows if row["event"] in ("pause", "resume")] == ["pause", "resume"]


def test_a_node_that_has_not_joined_is_missing_and_nobody_else() -> None:
    ran = Run(publish(0, 0) + fault(500, "join", "nodes = [4, 6]") + publish(500, 4) + publish(600, 0))
    assert sorted(ran.delivered_at(source=0, sequence=1)) == [0, 1, 2, 3, 5, 7]
    assert sorted(ran.delivered_at(source=4)) == list(range(8))
    assert sorted(ran.delivered_at(source=0, sequence=2)) == list(range(8))
    assert ran.result.dropped == 0
    assert [(row["time"], row["node"]) for row in ran.of("join")] == [(500, 4), (500, 6)]


def test_a_node_that_has_left_is_missing_and_nobody_else() -> None:
    ran = Run(fault(500, "leave", "node = 4") + publish(500, 0) + fault(1000, "join", "node = 4") + publish(1100, 0))
    assert sorted(ran.delivered_at(sequence=1)) == [0, 1, 2, 3, 5, 6, 7]
    assert sorted(ran.delivered_at(sequence=2)) == list(range(8))
    assert ran.result.dropped == 0
    assert [(row["time"], row["node"]) for row in ran.of("leave")] == [(500, 4)]


def test_what_a_node_has_sent_before_it_leaves_is_still_transmitted() -> None:
    ran = Run(SLOW + publish(0, 0) + fault(15, "leave", "node = 0"))
    assert sorted(ran.delivered_at()) == list(range(8))


def test_a_partition_loses_what_crosses_it_and_heals() -> None:
    ran = Run(
        fault(0, "partition", 'until = 1000\ngroups = ["0-3", "4-7"]')
        + publish(0, 0)
        + publish(0, 4)
        + publish(1000, 0)
    )
    assert sorted(ran.delivered_at(source=0, sequence=1)) == [0, 1, 2, 3]
    assert sorted(ran.delivered_at(source=4)) == [4, 5, 6, 7]
    assert sorted(ran.delivered_at(source=0, sequence=2)) == list(range(8))
    assert {(row["node"], row["peer"], row["reason"]) for row in ran.of("drop")} == {
        (4, 0, "partition"),
        (0, 4, "partition"),
    }


def test_a_partition_without_an_end_never_heals_and_nodes_in_no_group_form_one() -> None:
    ran = Run(fault(0, "partition", "groups = [[4, 5, 6, 7]]") + publish(900_000, 0))
    assert sorted(ran.delivered_at()) == [0, 1, 2, 3]


def test_a_one_way_partition_loses_only_what_the_first_group_sends() -> None:
    ran = Run(fault(0, "partition", 'groups = ["0-3"]\none_way = true') + publish(0, 0) + publish(0, 4))
    assert sorted(ran.delivered_at(source=0)) == [0, 1, 2, 3]
    assert sorted(ran.delivered_at(source=4)) == list(range(8))


def test_at_the_same_tick_faults_come_before_publications() -> None:
    ran = Run(publish(10, 3) + fault(10, "crash", "node = 4") + fault(10, "join", "node = 3"))
    assert [row["event"] for row in ran.rows[:3]] == ["crash", "join", "publish"]


# Networks and orders.


def test_every_copy_may_be_lost() -> None:
    ran = Run("[network]\nloss = 1\n" + publish(0, 0))
    assert ran.delivered_at() == [0]
    assert [row["reason"] for row in ran.of("drop")] == ["loss"] * 3
    assert (ran.result.sent, ran.result.dropped) == (3, 3)


DOUBLED = "[network]\nduplication = 1\n[protocol-options]\nacknowledge = false\n" + publish(0, 0)


def test_duplicates_are_delivered_once_even_without_an_order() -> None:
    ran = Run(DOUBLED, order="none")
    assert sorted(ran.delivered_at()) == list(range(8))
    assert len(ran.of("receive")) > len(ran.of("send")) > 7


def test_best_effort_delivers_what_arrives_as_often_as_it_arrives() -> None:
    ran = Run(DOUBLED, order="best-effort")
    # A copy is doubled on every hop: twice at the children of the root, four times at theirs, and so on.
    assert [ran.delivered_at().count(node) for node in range(8)] == [1, 2, 2, 4, 2, 4, 4, 8]


JUMBLED = "[network]\nreordering = 0.5\nreordering_window = 500\n" + "".join(publish(10 * n, 0) for n in range(20))


def sequences(ran: Run, event: str, node: int) -> list[int]:
    return [row["sequence"] for row in ran.of(event, node=node, message="Ordered")]


def test_fifo_keeps_the_order_of_a_source_on_a_network_that_reorders() -> None:
    ran = Run(JUMBLED, order="fifo")
    for node in range(8):
        assert sequences(ran, "deliver", node) == list(range(1, 21))
    assert sequences(ran, "receive", 1) != sorted(sequences(ran, "receive", 1))
    assert ran.result.held_total > 0


def test_without_an_order_publications_are_delivered_as_they_arrive() -> None:
    ran = Run(JUMBLED, order="none")
    assert sequences(ran, "deliver", 1) == sequences(ran, "receive", 1) != sorted(sequences(ran, "receive", 1))
    assert ran.result.held_total == 0


def causal_violations(ran: Run) -> int:
    """Deliveries of a publication before something that its publisher had published or delivered before it."""
    past: dict[tuple[int, int], set[tuple[int, int]]] = {}
    known: dict[int, set[tuple[int, int]]] = {node: set() for node in range(8)}
    violations = 0
    for row in ran.rows:
        what = (row["source"], row["sequence"])
        if row["event"] == "publish":
            past[what] = set(known[row["node"]])
        elif row["event"] == "deliver":
            violations += not past[what] <= known[row["node"]]
            known[row["node"]].add(what)
    return violations


@pytest.mark.parametrize(("order", "is_kept"), [("causal", True), ("fifo", False), ("none", False)])
def test_only_causal_order_keeps_causal_order(order: str, is_kept: bool) -> None:
    ran = Run(
        '[network]\ndelay = { law = "normal", mean = 100, deviation = 40 }\n'
        '[workload]\nkind = "rate"\nmean_gap = 30\ncount = 200\n',
        order=order,
    )
    assert (causal_violations(ran) == 0) == is_kept
    assert ran.result.deliveries == ran.result.expected_deliveries == 1600


def arrivals(ran: Run) -> dict[int, int]:
    return {row["node"]: row["time"] for row in ran.of("deliver")}


def test_a_matrix_gives_the_delay_between_places() -> None:
    ran = Run('[network]\ndelay = { law = "matrix", rows = [[5, 70], [30, 5]] }\n' + publish(0, 0), nodes=4)
    # Node 0 serves 1 (the other place) and 2 (its own), node 2 serves 3 (the other place).
    assert arrivals(ran) == {0: 0, 1: 1 + 70 + 1, 2: 2 + 5 + 1, 3: 8 + 1 + 70 + 1}


def test_links_keep_their_delays_and_may_be_symmetric() -> None:
    text = (
        '[network]\ndelay = {{ law = "link", of = {{ law = "normal", mean = 100, deviation = 30 }}, symmetric = {} }}\n'
    )
    for symmetric in ("true", "false"):
        ran = Run(text.format(symmetric) + publish(0, 0) + publish(1000, 0) + publish(2000, 1), nodes=2)
        there, there_again, back = (row["value"] for row in ran.of("deliver") if row["node"] != row["source"])
        assert there == there_again
        assert (there == back) == (symmetric == "true")


def test_processing_transmission_and_delay_add_up() -> None:
    text = '[network]\ndelay = { law = "constant", ticks = 40 }\ntransmission = 3\nprocessing = 7\n'
    assert arrivals(Run(text + publish(0, 0), nodes=2)) == {0: 0, 1: 3 + 40 + 7}


@pytest.mark.parametrize(("charged", "at"), [("true", 109 + 3 + 101), ("false", 104 + 3 + 101)])
def test_acknowledgements_wait_for_the_output_server_only_if_they_are_charged(charged: str, at: int) -> None:
    # Node 1 sends two copies at 103 that keep its server busy until 109, and the acknowledgement at 104.
    text = f"[network]\ntransmission = 3\ncharge_control = {charged}\n"
    ran = Run(text + publish(0, 0) + publish(103, 1), nodes=4)
    assert [row["time"] for row in ran.of("receive", node=0, message="Acknowledgement", peer=1)][:1] == [at]


# Protocols.


def test_acknowledgements_can_be_left_out() -> None:
    assert Run(publish(0, 0)).of("send", message="Acknowledgement") != []
    assert Run("[protocol-options]\nacknowledge = false\n" + publish(0, 0)).of("send", message="Acknowledgement") == []


@pytest.mark.parametrize(("largest_first", "children"), [("false", [1, 2, 4]), ("true", [4, 2, 1])])
def test_the_largest_subtree_can_be_served_first(largest_first: str, children: list[int]) -> None:
    ran = Run(f"[protocol-options]\nlargest_first = {largest_first}\n" + publish(0, 0))
    assert [row["peer"] for row in ran.of("send", node=0, message="Ordered")] == children


def test_a_single_tree_begins_at_its_root() -> None:
    ran = Run('protocol = "single-tree"\nprotocol-options = { root = 5 }\n' + publish(0, 0))
    sends = [(row["node"], row["peer"]) for row in ran.of("send", message="Ordered")]
    assert sends[:4] == [(0, 5), (5, 4), (5, 7), (5, 1)]
    assert sorted(ran.delivered_at()) == list(range(8))


# Results.


def test_the_counters_agree_with_the_trace() -> None:
    ran = Run("[network]\nloss = 0.1\nduplication = 0.1\n[workload]\nkind = 'once'\nwindow = 500\n", nodes=32)
    result = ran.result
    elsewhere = [row["value"] for row in ran.of("deliver") if row["node"] != row["source"]]
    assert (result.stopped, result.planned, result.published) == ("finished", 32, len(ran.of("publish")))
    assert (result.sent, result.dropped) == (len(ran.of("send")), len(ran.of("drop")))
    assert result.deliveries == len(ran.of("deliver"))
    assert result.expected_deliveries == 32 * 32
    assert result.latency_mean == sum(elsewhere) / len(elsewhere)
    assert result.latency_max == max(elsewhere)
    assert result.end_time == ran.rows[-1]["time"]
    assert result.events == 32 + result.sent - result.dropped + len(ran.of("duplicate"))


WAITING = fault(0, "partition", "until = 50\ngroups = [[0]]") + publish(0, 0) + publish(100, 0) + publish(200, 0)


def test_what_waits_for_something_lost_waits_to_the_end() -> None:
    ran = Run(WAITING, nodes=2, order="fifo")
    assert ran.delivered_at() == [0, 0, 0]
    assert (ran.result.held_total, ran.result.held_peak, ran.result.held_at_end) == (2, 2, 2)
    assert ran.result.expected_deliveries == 6


def test_what_waited_at_a_node_that_crashed_is_counted_but_waits_no_more() -> None:
    ran = Run(
        WAITING + fault(1000, "crash", "node = 1") + fault(1100, "restart", "node = 1") + publish(1200, 0),
        nodes=2,
        order="fifo",
    )
    assert (ran.result.held_total, ran.result.held_peak, ran.result.held_at_end) == (3, 2, 1)
    assert ran.result.expected_deliveries is None


def test_nobody_elsewhere_means_no_latency() -> None:
    result = Run(publish(0, 0), nodes=1).result
    assert (result.deliveries, result.latency_mean, result.latency_max) == (1, None, None)


def test_a_workload_skips_nodes_that_are_not_up() -> None:
    ran = Run('[workload]\nkind = "once"\n' + fault(0, "crash", "nodes = [1, 2]") + fault(0, "pause", "node = 3"))
    assert (ran.result.planned, ran.result.published) == (8, 5)


def test_running_out_of_time_is_said() -> None:
    ran = Run(publish(0, 0) + "[limits]\ntime = 103\n")
    # The copies to 1 and 2 are handled at 102 and 103, the one to 4 would be at 104.
    assert (ran.result.stopped, ran.result.end_time) == ("time limit", 103)
    assert ran.delivered_at() == [0, 1, 2]


def test_running_out_of_events_is_said() -> None:
    # At time 0 one event, then one or more per tick: the limit is met by the first tick that reaches it.
    ran = Run(publish(0, 0) + "[limits]\nevents = 3\n")
    assert (ran.result.stopped, ran.result.events) == ("event limit", 3)
    assert Run(publish(0, 0) + f"[limits]\nevents = {1 + 7 + 7}\n").result.stopped == "finished"


# Whole runs and their files.


def test_the_example_of_a_crash_does_what_its_comments_say() -> None:
    result = run_scenario(load_scenario(EXAMPLES["crash"]))
    # 28 of 64 nodes are below the three children of node 32 that got no copy; 32 miss the second publication.
    assert (result.published, result.deliveries) == (4, (64 - 28) + 32 + 63 + 64)


def test_the_example_of_a_partition_does_what_its_comments_say() -> None:
    result = run_scenario(load_scenario(EXAMPLES["partition"]))
    assert result.stopped == "finished"
    assert result.dropped > 0
    assert result.held_at_end > 0
    assert result.expected_deliveries is not None and result.deliveries < result.expected_deliveries


def test_the_example_of_a_bad_network_does_what_its_comments_say() -> None:
    scenario = load_scenario(EXAMPLES["lossy"])
    result = run_scenario(scenario)
    assert result.published == 100
    assert result.dropped > 0
    assert result.expected_deliveries is not None and result.deliveries < result.expected_deliveries


def test_the_example_of_churn_does_what_its_comments_say() -> None:
    result = run_scenario(load_scenario(EXAMPLES["churn"]))
    assert result.stopped == "finished"
    assert result.published < result.planned
    # 40 to 48 nodes are there at any time.
    assert 39 * result.published < result.deliveries < 48 * result.published


def test_the_example_of_a_single_tree_does_what_its_comments_say() -> None:
    scenario = load_scenario(EXAMPLES["single-tree"])
    single = run_scenario(scenario)
    many = run_scenario(parse_scenario('nodes = 256\norder = "fifo"\nworkload = { kind = "once", window = 1000 }'))
    assert single.deliveries == many.deliveries == 256 * 256
    assert single.latency_mean is not None and many.latency_mean is not None
    assert single.latency_mean > 2 * many.latency_mean


def test_the_example_of_topics_does_what_its_comments_say() -> None:
    result = run_scenario(load_scenario(EXAMPLES["topics"]))
    assert result.stopped == "finished"
    assert result.held_total > 0
    assert result.violations == dict.fromkeys(
        ("duplicates", "validity", "fifo", "causal", "membership", "completeness", "requests", "stuck"), 0
    )


def test_the_example_of_the_published_protocol_does_what_its_comments_say() -> None:
    scenario = load_scenario(EXAMPLES["published"])
    published, repaired = (
        run_scenario(msgspec.structs.replace(scenario, protocol=name)) for name in (scenario.protocol, "vcube-ps")
    )
    assert published.violations is not None and repaired.violations is not None
    assert published.violations["completeness"] > 0
    assert published.held_at_end > 0
    assert published.violations["stuck"] >= published.held_at_end
    assert not any(repaired.violations.values())


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_same_seed_same_bytes(name: str, ending: str, tmp_path: Path) -> None:
    for number in range(2):
        run_scenario(load_scenario(EXAMPLES[name]), tmp_path / f"{number}.{ending}")
    assert (tmp_path / f"0.{ending}").read_bytes() == (tmp_path / f"1.{ending}").read_bytes()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_another_seed_is_another_run(name: str, tmp_path: Path) -> None:
    for seed in (1, 2):
        run_scenario(load_scenario(EXAMPLES[name], seed=seed), tmp_path / f"{seed}.arrow")
    # Nothing in the scenario of a crash is left to chance.
    assert read_trace(tmp_path / "1.arrow").equals(read_trace(tmp_path / "2.arrow")) == (name == "crash")


def test_being_watched_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "EVENTS_PER_SLICE", 1000)
    scenario = load_scenario(EXAMPLES["lossy"])
    seen: list[tuple[int, int]] = []
    watched = run_scenario(scenario, tmp_path / "watched.parquet", lambda events, now: seen.append((events, now)))
    alone = run_scenario(scenario, tmp_path / "alone.parquet")
    assert (tmp_path / "watched.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    assert len(seen) == watched.events // 1000
    assert seen == sorted(seen)
    assert (watched.events, watched.deliveries) == (alone.events, alone.deliveries)


def test_slices_make_no_difference_to_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario(EXAMPLES["partition"])
    whole = run_scenario(scenario)
    monkeypatch.setattr(run, "EVENTS_PER_SLICE", 7)
    sliced = run_scenario(scenario)
    for key in ("stopped", "events", "end_time", "deliveries", "dropped", "held_total", "held_at_end", "latency_mean"):
        assert getattr(sliced, key) == getattr(whole, key)


def test_a_trace_says_how_it_came_about(tmp_path: Path) -> None:
    scenario = load_scenario(EXAMPLES["crash"])
    result = run_scenario(scenario, tmp_path / "crash.parquet")
    table = read_trace(tmp_path / "crash.parquet")
    about = about_trace(table)
    assert (result.trace, result.trace_rows) == (str(tmp_path / "crash.parquet"), table.num_rows)
    assert about["level"] == "everything"
    assert about["host"] == "simulator"
    described = about["scenario"]
    assert isinstance(described, dict)
    assert described["seed"] == 7
    assert described["fault"][0]["kind"] == "crash"


def test_a_trace_of_deliveries_has_no_copies(tmp_path: Path) -> None:
    run_scenario(load_scenario(EXAMPLES["partition"]), tmp_path / "a.arrow")
    events = set(read_trace(tmp_path / "a.arrow").column("event").to_pylist())
    assert events == {"publish", "deliver", "drop", "pause", "resume", "stuck", "end"}


def test_a_wrong_scenario_or_place_leaves_nothing_behind(tmp_path: Path) -> None:
    right = load_scenario(EXAMPLES["crash"])
    wrong = Scenario(nodes=8, publications=[PublishTable(at=0, node=9)])
    with pytest.raises(ScenarioError, match="there is no node 9 among 8"):
        run_scenario(wrong, tmp_path / "new" / "a.parquet")
    (tmp_path / "directory.parquet").mkdir()
    with pytest.raises(UsageError, match=r"directory\.parquet is a directory; name a file in it"):
        run_scenario(right, tmp_path / "directory.parquet")
    with pytest.raises(UsageError, match=r"^a trace is written as \.parquet, \.arrow or \.txt, not as 'a\.csv'"):
        run_scenario(right, tmp_path / "new" / "a.csv")
    counts = parse_scenario('nodes = 4\nworkload = { kind = "once" }\ntrace = { level = "counts" }')
    with pytest.raises(UsageError, match=r"^the level of the trace is counts, which has no rows; choose"):
        run_scenario(counts, tmp_path / "new" / "a.parquet")
    (tmp_path / "file").touch()
    with pytest.raises(PeerError, match=r"^cannot write the trace to .*/file/a\.parquet: .*; choose another place$"):
        run_scenario(right, tmp_path / "file" / "a.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory.parquet", "file"]


def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "EVENTS_PER_SLICE", 1000)

    def interrupt(events: int, now: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scenario(load_scenario(EXAMPLES["lossy"]), tmp_path / "a.parquet", interrupt)
    assert list(tmp_path.iterdir()) == []
