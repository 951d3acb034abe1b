"""Scenario files: what they say, and what is said about the wrong ones."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.kernel.errors import PeerError, ScenarioError, UsageError
from antiphon.kernel.process import Process
from antiphon.simulator.engine.engine import Engine
from antiphon.simulator.network.delays import ConstantDelay
from antiphon.simulator.network.network import NetworkModel
from antiphon.simulator.scenario.file import check_scenario, load_scenario, parse_scenario
from antiphon.simulator.scenario.protocols import PROTOCOLS
from antiphon.simulator.scenario.run import build_cube, schedule_faults
from antiphon.simulator.scenario.scenario import (
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
    SubscribeTable,
    TopicsTable,
    TraceTable,
    expand_nodes,
)
from antiphon.trace.store import LEVELS

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))
MANUAL = (ROOT / "docs" / "scenarios.md").read_text()

ONCE = 'nodes = 64\nworkload = { kind = "once" }\n'


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
        SubscribeTable,
    ]
    return [*rest, *faults, *laws, *options]


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
    engine = Engine(3, NetworkModel(ConstantDelay(1)), Idle, can_fail=True, absent=scenario.absent_at_start())
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
