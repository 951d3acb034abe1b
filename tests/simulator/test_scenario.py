"""Scenario files: what they say, and what is said about the wrong ones."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.kernel.errors import PeerError, ScenarioError, UsageError
from antiphon.kernel.process import Process
from antiphon.simulator.engine import Engine
from antiphon.simulator.network import ConstantDelay, Network
from antiphon.simulator.protocols import PROTOCOLS
from antiphon.simulator.run import build_cube, schedule_faults
from antiphon.simulator.scenario import (
    ConstantLaw,
    CrashFault,
    Fault,
    JoinFault,
    LeaveFault,
    LimitsTable,
    LinkLaw,
    MatrixLaw,
    NetworkTable,
    NormalLaw,
    OnceWorkload,
    PartitionFault,
    PauseFault,
    PublishTable,
    RateWorkload,
    RestartFault,
    ResumeFault,
    Scenario,
    SubscriptionTable,
    TopicsTable,
    TraceTable,
    expand_nodes,
)
from antiphon.simulator.scenario_file import check_scenario, load_scenario, parse_scenario
from antiphon.trace.store import LEVELS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))
MANUAL = (ROOT / "docs" / "scenarios.md").read_text()

ONCE = 'nodes = 64\nworkload = { kind = "once" }\n'


def complaint(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "a.toml")
    return str(caught.value)


def test_the_smallest_scenario_has_sensible_defaults() -> None:
    scenario = parse_scenario(ONCE)
    assert scenario == Scenario(
        name="unnamed",
        seed=1,
        fabric="cube",
        protocol="broadcast",
        order="causal",
        nodes=64,
        protocol_options={},
        network=NetworkTable(
            delay=ConstantLaw(ticks=100),
            transmission=1,
            processing=1,
            charge_control=True,
            loss=0.0,
            duplication=0.0,
            reordering=0.0,
            reordering_window=0,
        ),
        workload=OnceWorkload(share=1.0, start=0, window=0, payload_bytes=0),
        publications=[],
        faults=[],
        limits=LimitsTable(time=10**9, events=200_000_000),
        trace=TraceTable(level="deliveries"),
    )


def test_every_key_of_a_file_is_understood() -> None:
    scenario = parse_scenario(
        """
        name = "all"
        seed = 9
        fabric = "cube"
        protocol = "single-tree"
        order = "fifo"
        nodes = 8
        protocol-options = { root = 3, acknowledge = false, largest_first = true }
        publish = [{ at = 10, node = 7, payload = "ü" }]
        fault = [
            { at = 1, kind = "crash", node = 1, detected_after = 5 },
            { at = 2, kind = "restart", node = 1 },
            { at = 3, kind = "pause", nodes = [2, 3] },
            { at = 4, kind = "resume", nodes = "2-3" },
            { at = 5, kind = "leave", node = 4 },
            { at = 6, kind = "join", node = 4 },
            { at = 7, kind = "partition", until = 9, groups = ["0-3", [4, 5]], one_way = true },
        ]
        [network]
        delay = { law = "link", of = { law = "normal", mean = 50.5, deviation = 3 }, symmetric = false }
        transmission = 2
        processing = 3
        charge_control = false
        loss = 0.1
        duplication = 0.2
        reordering = 0.3
        reordering_window = 4
        [workload]
        kind = "rate"
        mean_gap = 0.5
        count = 3
        until = 100
        start = 5
        payload_bytes = 6
        [limits]
        time = 1000
        events = 2000
        [trace]
        level = "everything"
        """
    )
    assert scenario == Scenario(
        name="all",
        seed=9,
        protocol="single-tree",
        order="fifo",
        nodes=8,
        protocol_options={"root": 3, "acknowledge": False, "largest_first": True},
        network=NetworkTable(
            delay=LinkLaw(of=NormalLaw(mean=50.5, deviation=3.0), symmetric=False),
            transmission=2,
            processing=3,
            charge_control=False,
            loss=0.1,
            duplication=0.2,
            reordering=0.3,
            reordering_window=4,
        ),
        workload=RateWorkload(mean_gap=0.5, count=3, until=100, start=5, payload_bytes=6),
        publications=[PublishTable(at=10, node=7, payload="ü")],
        faults=[
            CrashFault(at=1, node=1, detected_after=5),
            RestartFault(at=2, node=1),
            PauseFault(at=3, nodes=[2, 3]),
            ResumeFault(at=4, nodes="2-3"),
            LeaveFault(at=5, node=4),
            JoinFault(at=6, node=4),
            PartitionFault(at=7, until=9, groups=["0-3", [4, 5]], one_way=True),
        ],
        limits=LimitsTable(time=1000, events=2000),
        trace=TraceTable(level="everything"),
    )


def test_a_matrix_of_delays_is_understood() -> None:
    scenario = parse_scenario(ONCE + '[network]\ndelay = { law = "matrix", rows = [[1, 2], [3, 4]] }')
    assert scenario.network.delay == MatrixLaw(rows=[[1, 2], [3, 4]])


WRONG = {
    "syntax": (
        "nodes = 64\nname is this\n",
        "a.toml, line 2, column 6: expected '=' after a key in a key/value pair, in the line: name is this; "
        'write one key = value per line and text in quotes, for example: name = "a first try"',
    ),
    "unfinished": (
        "nodes = [64\n",
        "a.toml, at its end: unclosed array; write one key = value per line and text in quotes, "
        'for example: name = "a first try"',
    ),
    "missing key": (
        "seed = 1\n",
        "a.toml: the key 'nodes' is missing; expected a number of nodes from 1 to 4194304; for example: nodes = 64",
    ),
    "missing key in a table": (
        ONCE + '[[fault]]\nkind = "crash"\nnode = 1',
        "a.toml, line 3: fault 1: the key 'at' is missing; expected a time in ticks, 0 or more; for example: at = 500",
    ),
    "missing kind": (
        "nodes = 64\n[workload]\nwindow = 10",
        "a.toml, line 2: workload: the key 'kind' is missing; expected one of once, rate; for example: kind = \"once\"",
    ),
    "unknown key": (
        ONCE + "\nnode = 3",
        "a.toml, line 4: node: there is no such key (did you mean 'nodes'?); for example: nodes = 64; the keys here "
        "are name, seed, fabric, protocol, order, nodes, protocol-options, network, topics, workload, publish, "
        "subscribe, unsubscribe, fault, limits, trace",
    ),
    "unknown key in a table": (
        ONCE + "[network]\ntransmission = 3\nlatency = 100",
        "a.toml, line 5: network.latency: there is no such key; the keys here are delay, transmission, processing, "
        "charge_control, loss, duplication, reordering, reordering_window, detection, in_order",
    ),
    "a key that another kind of fault has": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 3\nuntil = 9',
        "a.toml, line 7: fault 1, until: there is no such key; the keys here are kind, at, node, nodes, detected_after",
    ),
    "an option that another protocol has": (
        ONCE + "[protocol-options]\nroot = 3",
        "a.toml, line 4: protocol-options.root: there is no such key; the keys here are acknowledge, largest_first",
    ),
    "wrong type": (
        'nodes = "64"',
        'a.toml, line 1: nodes: expected a number of nodes from 1 to 4194304, not "64"; for example: nodes = 64',
    ),
    "wrong type of an option": (
        ONCE + "[protocol-options]\nacknowledge = 1",
        "a.toml, line 4: protocol-options.acknowledge: expected true or false, not 1; for example: acknowledge = true",
    ),
    "not a table": (
        "nodes = 64\nworkload = 3",
        "a.toml, line 2: workload: expected a table that describes the workload, not 3; "
        'for example: workload = { kind = "once", window = 1000 }',
    ),
    "not a list of tables": (
        ONCE + "fault = [3]",
        "a.toml, line 3: fault 1: expected tables [[fault]], not 3; "
        'for example: fault = [{ at = 500, kind = "crash", node = 5 }]',
    ),
    "too small": (
        "nodes = 0",
        "a.toml, line 1: nodes: expected a number of nodes from 1 to 4194304, not 0; for example: nodes = 64",
    ),
    "too many": (
        "nodes = 4194305",
        "a.toml, line 1: nodes: expected a number of nodes from 1 to 4194304, not 4194305; for example: nodes = 64",
    ),
    "not a probability": (
        ONCE + "[network]\nloss = 1.5",
        "a.toml, line 4: network.loss: expected a probability from 0 to 1, not 1.5; for example: loss = 0.01",
    ),
    "not a number": (
        ONCE + "[network]\nloss = nan",
        "a.toml, line 4: network.loss: expected a probability from 0 to 1, not nan; for example: loss = 0.01",
    ),
    "negative time": (
        ONCE + '[[fault]]\nat = -1\nkind = "crash"\nnode = 3',
        "a.toml, line 4: fault 1, at: expected a time in ticks, 0 or more, not -1; for example: at = 500",
    ),
    "negative delay": (
        ONCE + "[network]\ntransmission = -1",
        "a.toml, line 4: network.transmission: expected a number of ticks, 0 or more, not -1; "
        "for example: transmission = 100",
    ),
    "negative delay in a matrix": (
        ONCE + '[network]\ndelay = { law = "matrix", rows = [[1, 2], [-3, 4]] }',
        "a.toml, line 4: network.delay.rows 2, 1: expected one row of delays in ticks for each place, as long as there "
        "are rows, not -3; for example: rows = [[1, 80], [80, 1]]",
    ),
    "a matrix that is not square": (
        ONCE + '[network]\ndelay = { law = "matrix", rows = [[1, 2], [3]] }',
        "a.toml, line 4: network.delay.rows 2: expected as many delays as there are rows, 2, not 1; "
        "for example: rows = [[1, 80], [80, 1]]",
    ),
    "an empty matrix": (
        ONCE + '[network]\ndelay = { law = "matrix", rows = [] }',
        "a.toml, line 4: network.delay.rows: a matrix needs a row; for example: rows = [[1, 80], [80, 1]]",
    ),
    "unknown law": (
        ONCE + '[network]\ndelay = { law = "konstant", ticks = 3 }',
        'a.toml, line 4: network.delay.law: expected one of constant, normal, quantiles, link, matrix, not "konstant" '
        "(did you mean 'constant'?); for example: law = \"constant\"",
    ),
    "a law that links cannot draw from": (
        ONCE + '[network]\ndelay = { law = "link", of = { law = "matrix", rows = [[1]] } }',
        'a.toml, line 4: network.delay.of.law: expected one of constant, normal, quantiles, not "matrix"; '
        'for example: law = "constant"',
    ),
    "reordering without a window": (
        ONCE + "[network]\nreordering = 0.1",
        "a.toml, line 4: network.reordering: reordered copies need a time by which they may be late; "
        "add for example: reordering_window = 50",
    ),
    "unknown fabric": (
        ONCE + 'fabric = "torus"',
        'a.toml, line 3: fabric: expected one of cube, gossip, tree, not "torus"; for example: fabric = "cube"',
    ),
    "unknown protocol": (
        ONCE + 'protocol = "singletree"',
        "a.toml, line 3: protocol: expected one of broadcast, single-tree, causal-aggregation, timer-bundling, "
        "vcube-ps, vcube-ps-lasting, vcube-ps-published, srpt-s, "
        "srpt-b, brisa, broker-tree, ginger-published, flooding, plumtree, simple-gossip, simple-tree, tag, epto, "
        'stan, not "singletree" '
        "(did you mean 'single-tree'?); for example: protocol = \"single-tree\"",
    ),
    "unknown order": (
        ONCE + 'order = "weak"',
        'a.toml, line 3: order: expected one of best-effort, none, fifo, causal, total, not "weak"; '
        'for example: order = "best-effort"',
    ),
    "a root that does not exist": (
        ONCE + 'protocol = "single-tree"\n[protocol-options]\nroot = 64',
        "a.toml, line 5: protocol-options.root: there is no node 64 among 64; choose from 0 to 63, for example: 32",
    ),
    "nothing to do": (
        "nodes = 64",
        'a.toml: nothing is published; add for example: workload = { kind = "once", window = 1000 }',
    ),
    "a rate without an end": (
        'nodes = 64\n[workload]\nkind = "rate"\nmean_gap = 3',
        "a.toml, line 2: workload: a rate needs an end; add for example: count = 1000, or: until = 50000",
    ),
    "a rate that ends before it starts": (
        'nodes = 64\n[workload]\nkind = "rate"\nmean_gap = 3\nstart = 50\nuntil = 50',
        "a.toml, line 6: workload.until: expected a time after the start, 50, not 50; for example: until = 1050",
    ),
    "too many publications": (
        'nodes = 64\n[workload]\nkind = "rate"\nmean_gap = 0.5\nuntil = 5000000',
        "a.toml, line 2: workload: expected at most 5000000 publications, not 10000000; "
        "publish fewer, for example: count = 100000",
    ),
    "a workload that starts after the end": (
        'nodes = 64\n[workload]\nkind = "once"\nstart = 101\n[limits]\ntime = 100',
        "a.toml, line 4: workload.start: 101 is after the end of the run; choose an earlier time, for example: 50, "
        "or a later end in [limits], for example: time = 202",
    ),
    "a fault after the end": (
        ONCE + '[[fault]]\nat = 101\nkind = "crash"\nnode = 3\n[limits]\ntime = 100',
        "a.toml, line 4: fault 1, at: 101 is after the end of the run; choose an earlier time, for example: 50, "
        "or a later end in [limits], for example: time = 202",
    ),
    "a publisher that does not exist": (
        "nodes = 64\n[[publish]]\nat = 0\nnode = 70",
        "a.toml, line 4: publish 1, node: there is no node 70 among 64; choose from 0 to 63, for example: 32",
    ),
    "a publisher that is down": (
        'nodes = 64\n[[publish]]\nat = 8\nnode = 7\n[[fault]]\nat = 8\nkind = "crash"\nnode = 7',
        "a.toml, line 2: publish 1: node 7 is down at time 8 and cannot publish; let for example come before it: "
        'at = 8, kind = "restart", node = 7',
    ),
    "a publisher that has not joined": (
        'nodes = 64\n[[publish]]\nat = 8\nnode = 7\n[[fault]]\nat = 9\nkind = "join"\nnode = 7',
        "a.toml, line 2: publish 1: node 7 is absent at time 8 and cannot publish; let for example come before it: "
        'at = 8, kind = "join", node = 7',
    ),
    "unknown fault": (
        ONCE + '[[fault]]\nat = 1\nkind = "crsh"\nnode = 3',
        "a.toml, line 5: fault 1, kind: expected one of crash, restart, pause, resume, join, leave, partition, "
        'clock, disk, not "crsh" (did you mean \'crash\'?); for example: kind = "crash"',
    ),
    "a ring of three": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = [[0], [1], [2]]\nlinked = "ring"',
        "a.toml, line 6: fault 1, groups: a ring of groups cuts nobody off unless there are 4 of them, not 3; for "
        "example: groups = [[0], [1], [2], [3]]",
    ),
    "a fault of nobody": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"',
        "a.toml, line 3: fault 1: expected node or nodes, but found neither; for example: node = 5, or: nodes = [5, 6]",
    ),
    "a fault of a node and nodes": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 1\nnodes = [2]',
        "a.toml, line 3: fault 1: expected node or nodes, but found both; for example: node = 5, or: nodes = [5, 6]",
    ),
    "a fault of no nodes": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = []',
        "a.toml, line 6: fault 1, nodes: expected at least one node; for example: nodes = [5, 6]",
    ),
    "a fault of a node that does not exist": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 70',
        "a.toml, line 6: fault 1, node: there is no node 70 among 64; choose from 0 to 63, for example: 32",
    ),
    "a fault of one node too many": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = "60-64"',
        "a.toml, line 6: fault 1, nodes: there is no node 64 among 64; choose from 0 to 63, for example: 32",
    ),
    "ranges that are none": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = "3 to 5"',
        'a.toml, line 6: fault 1, nodes: expected ranges of nodes, not "3 to 5"; write for example "0-15,20"',
    ),
    "a range that runs backwards": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnodes = "5-3"',
        'a.toml, line 6: fault 1, nodes: the range 5-3 runs backwards; write "3-5"',
    ),
    "a restart of a node that is up": (
        ONCE + '[[fault]]\nat = 9\nkind = "crash"\nnode = 7\n[[fault]]\nat = 5\nkind = "restart"\nnode = 7',
        "a.toml, line 7: fault 2: node 7 is up at time 5, but a restart needs a node that is down; let for example "
        'come before it: at = 5, kind = "crash", node = 7',
    ),
    "a crash of a node that has left": (
        ONCE + '[[fault]]\nat = 1\nkind = "leave"\nnode = 7\n[[fault]]\nat = 5\nkind = "crash"\nnodes = "6-7"',
        "a.toml, line 7: fault 2: node 7 is absent at time 5, but a crash needs a node that is up or paused; let for "
        'example come before it: at = 5, kind = "join", node = 7',
    ),
    "a resume of a node that is down": (
        ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 7\n[[fault]]\nat = 5\nkind = "resume"\nnode = 7',
        "a.toml, line 7: fault 2: node 7 is down at time 5, but a resume needs a node that is paused; "
        "check the faults of node 7 before that time",
    ),
    "a join of a node that is there": (
        ONCE + '[[fault]]\nat = 1\nkind = "pause"\nnode = 7\n[[fault]]\nat = 5\nkind = "join"\nnode = 7',
        "a.toml, line 7: fault 2: node 7 is paused at time 5, but a join needs a node that is absent; "
        "check the faults of node 7 before that time",
    ),
    "groups that overlap": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = ["0-31", "31-63"]',
        "a.toml, line 6: fault 1, groups 2: node 31 is in group 1 too; put each node into one group at most, "
        'for example: groups = ["0-31", "32-63"]',
    ),
    "a partition of nothing": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = ["0-63"]',
        "a.toml, line 6: fault 1, groups: expected groups of at least one node each that leave somebody to be parted "
        'from; for example: groups = ["0-31", "32-63"]',
    ),
    "an empty group": (
        ONCE + '[[fault]]\nat = 1\nkind = "partition"\ngroups = [[1], []]',
        "a.toml, line 6: fault 1, groups: expected groups of at least one node each that leave somebody to be parted "
        'from; for example: groups = ["0-31", "32-63"]',
    ),
    "a partition that ends before it begins": (
        ONCE + '[[fault]]\nat = 5\nkind = "partition"\ngroups = [[1]]\nuntil = 5',
        "a.toml, line 7: fault 1, until: expected a time after the partition begins at 5, not 5; "
        "for example: until = 1005",
    ),
    "unknown level": (
        ONCE + '[trace]\nlevel = "delivery"',
        'a.toml, line 4: trace.level: expected one of counts, deliveries, everything, not "delivery" '
        "(did you mean 'deliveries'?); for example: level = \"deliveries\"",
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_scenario_is_explained(text: str, expected: str) -> None:
    assert complaint(text) == expected


def test_every_example_in_a_complaint_would_have_been_right() -> None:
    """What the types show as an example is a value that they accept."""
    shown = 0
    for table in tables():
        for described, declared in zip(fields_of(table), msgspec.structs.fields(table), strict=True):
            for member in getattr(described.type, "types", (described.type,)):
                if isinstance(member, msgspec.inspect.Metadata):
                    assert member.extra_json_schema is not None
                    msgspec.convert(member.extra_json_schema["examples"][0], declared.type)
                    shown += 1
    assert shown > 40


def fields_of(table: type[msgspec.Struct]) -> tuple[msgspec.inspect.Field, ...]:
    info = msgspec.inspect.type_info(table)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def tables() -> list[type[msgspec.Struct]]:
    faults: list[type[msgspec.Struct]] = [
        CrashFault,
        RestartFault,
        PauseFault,
        ResumeFault,
        JoinFault,
        LeaveFault,
        PartitionFault,
    ]
    laws: list[type[msgspec.Struct]] = [ConstantLaw, NormalLaw, LinkLaw, MatrixLaw]
    options = [protocol.options for protocol in PROTOCOLS.values()]
    rest: list[type[msgspec.Struct]] = [
        Scenario,
        NetworkTable,
        OnceWorkload,
        RateWorkload,
        PublishTable,
        LimitsTable,
        TraceTable,
        TopicsTable,
        SubscriptionTable,
    ]
    return [*rest, *faults, *laws, *options]


def test_the_manual_names_every_key_and_word() -> None:
    for table in tables():
        for key in [field.encode_name for field in fields_of(table)]:
            assert re.search(rf"`\[{{0,2}}{key}\]{{0,2}}`|\b{key} = ", MANUAL), f"docs/scenarios.md lacks {key}"
        if table.__struct_config__.tag is not None:
            assert f'"{table.__struct_config__.tag}"' in MANUAL
    for word in [*PROTOCOLS, "best-effort", "none", "fifo", "causal"]:
        assert f'`"{word}"`' in MANUAL


def test_the_scenarios_in_the_manual_are_right() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", MANUAL, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert parse_scenario(block).nodes == 64


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_right_and_survive_being_written_and_read(path: Path) -> None:
    scenario = load_scenario(path)
    assert msgspec.convert(msgspec.to_builtins(scenario), Scenario) == scenario


def test_seed_and_nodes_can_be_replaced_and_are_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(ONCE + '[[fault]]\nat = 1\nkind = "crash"\nnode = 40')
    scenario = load_scenario(path, seed=5, nodes=41)
    assert (scenario.seed, scenario.nodes) == (5, 41)
    with pytest.raises(
        ScenarioError, match=r"line 6: fault 1, node: there is no node 40 among 40; choose from 0 to 39"
    ):
        load_scenario(path, nodes=40)


def test_files_that_cannot_be_read_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^there is no scenario at .*none\.toml; check the name$"):
        load_scenario(tmp_path / "none.toml")
    with pytest.raises(UsageError, match=r"is a directory; name one scenario file in it"):
        load_scenario(tmp_path)
    (tmp_path / "latin.toml").write_bytes('nodes = 64\nname = "é"'.encode("latin-1"))
    with pytest.raises(ScenarioError, match=r"latin\.toml: byte 20 is not UTF-8 text; save the file as UTF-8$"):
        load_scenario(tmp_path / "latin.toml")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    with pytest.raises(PeerError, match=r"^cannot read .*loop\.toml: .*; check its permissions$"):
        load_scenario(tmp_path / "loop.toml")


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "mark.toml").write_bytes(b"\xef\xbb\xbf" + ONCE.encode())
    assert load_scenario(tmp_path / "mark.toml").nodes == 64


def test_scenarios_made_in_python_are_checked_as_well() -> None:
    with pytest.raises(ScenarioError, match=r"^scenario: publish 1, node: there is no node 9 among 8"):
        check_scenario(Scenario(nodes=8, publications=[PublishTable(at=0, node=9)]))


def test_the_levels_are_those_of_traces() -> None:
    (level,) = fields_of(TraceTable)
    assert isinstance(level.type, msgspec.inspect.LiteralType)
    assert set(level.type.values) == set(LEVELS)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [([], []), ([3, 1], [3, 1]), ("4", [4]), ("0-2, 7", [0, 1, 2, 7]), ("7,0-2", [7, 0, 1, 2]), ("5-5", [5])],
)
def test_sets_of_nodes(nodes: list[int] | str, expected: list[int]) -> None:
    assert expand_nodes(nodes, 8) == expected


def test_nodes_whose_first_fault_is_a_join_are_absent_at_the_start() -> None:
    scenario = parse_scenario(
        """
        nodes = 8
        publish = [{ at = 0, node = 0 }]
        fault = [
            { at = 5, kind = "join", nodes = "1-2" },
            { at = 3, kind = "join", node = 3 },
            { at = 6, kind = "join", node = 4 },
            { at = 4, kind = "leave", node = 4 },
        ]
        """
    )
    assert scenario.absent_at_start() == {1, 2, 3}
    assert [number for number, _ in scenario.faults_by_time()] == [1, 3, 0, 2]


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_whatever_is_wrong_is_explained_and_never_a_crash(data: st.DataObject) -> None:
    """Damage an example at one place: it is still right, or somebody is told where it is wrong."""
    text = data.draw(st.sampled_from([path.read_text() for path in EXAMPLES]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 30, len(text))))
    scraps = st.sampled_from(
        [
            "",
            "=",
            "[",
            "]",
            "{",
            "}",
            '"',
            "-1",
            "1e400",
            "nan",
            "true",
            "1979-05-27",
            "[[fault]]\n",
            "\nnode = 70\n",
            "99",
        ]
    )
    damaged = text[:start] + data.draw(scraps | st.text(max_size=5)) + text[end:]
    said = "a.toml"
    try:
        assert isinstance(parse_scenario(damaged, "a.toml"), Scenario)
    except ScenarioError as error:
        said = str(error)
    assert said.startswith("a.toml")


KINDS = [CrashFault, RestartFault, PauseFault, ResumeFault, JoinFault, LeaveFault]
FAULTS = st.lists(
    st.builds(
        lambda kind, at, node: kind(at=at, node=node), st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 2)
    ),
    max_size=8,
)


class Idle(Process):
    """Does nothing, so that only the faults matter."""


@given(faults=FAULTS)
@settings(max_examples=400, deadline=None)
def test_the_check_before_the_run_agrees_with_the_engine(faults: list[Fault]) -> None:
    """A sequence of faults is refused exactly when the engine would have stumbled over it."""
    scenario = Scenario(nodes=3, faults=faults, workload=OnceWorkload(start=20))
    engine = Engine(3, Network(ConstantDelay(1)), Idle, can_fail=True, absent=scenario.absent_at_start())
    schedule_faults(engine, scenario, build_cube(scenario))
    try:
        engine.run()
        accepted = True
    except UsageError:
        accepted = False
    try:
        check_scenario(scenario)
        assert accepted
    except ScenarioError:
        assert not accepted
