"""Grid files: what they expand into, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.kernel.errors import UsageError
from antiphon.pipeline.grid import Grid, load_grid, parse_grid
from antiphon.simulator.scenario.scenario import ConstantLaw, NormalLaw, PauseFault

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweeps" / "order-and-size.toml"

BASE = """experiment = "try"
[base]
nodes = 8
workload = { kind = "once", window = 100 }
"""


def grid(text: str, path: Path = Path("grid.toml")) -> Grid:
    return parse_grid(text, path)


def test_the_example_expands_into_every_combination() -> None:
    found = load_grid(EXAMPLE)
    assert (found.experiment, found.columns) == ("order-and-size", ["variant", "nodes", "scenario_order", "seed"])
    combinations = {tuple(cell.parameters.values()) for cell in found.cells}
    assert combinations == {
        (variant, nodes, order, seed)
        for variant in ("calm", "pause")
        for nodes in (8, 32, 128)
        for order in ("fifo", "causal")
        for seed in (1, 2)
    }
    for cell in found.cells:
        scenario = cell.scenario
        assert [scenario.nodes, scenario.order, scenario.seed] == list(cell.parameters.values())[1:]
        assert any(isinstance(fault, PauseFault) for fault in scenario.faults) == (
            cell.parameters["variant"] == "pause"
        )


def test_the_grid_of_the_documentation_is_one() -> None:
    page = (EXAMPLE.parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    found = grid(page.partition("```toml\n")[2].partition("```")[0])
    assert found.columns == ["variant", "nodes", "scenario_order", "network_loss", "seed"]
    assert len(found.cells) == 2 * 3 * 2 * 2 * 2


def test_a_cell_has_a_place_that_spark_understands() -> None:
    (cell,) = grid(BASE + '[grid]\nnetwork.loss = [0.01]\norder = ["fifo"]').cells
    assert cell.directory == "experiment=try/network_loss=0.01/scenario_order=fifo/seed=1"


def test_names_with_strange_characters_make_one_step_of_a_path() -> None:
    text = BASE + "[grid]\nprotocol-options.acknowledge = [true, false]"
    assert [cell.directory for cell in grid(text).cells] == [
        "experiment=try/protocol_options_acknowledge=true/seed=1",
        "experiment=try/protocol_options_acknowledge=false/seed=1",
    ]


def test_without_a_grid_the_repetitions_are_the_cells() -> None:
    found = grid(BASE.replace("[base]", "repetitions = 3\n[base]\nseed = 5"))
    assert [cell.parameters for cell in found.cells] == [{"seed": 5}, {"seed": 6}, {"seed": 7}]


def test_a_scenario_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("nodes = 4\nworkload = { kind = 'once' }")
    found = grid('experiment = "try"\nscenario = "base.toml"\n[grid]\nnodes = [4, 6]', tmp_path / "grid.toml")
    assert [cell.scenario.nodes for cell in found.cells] == [4, 6]


def test_tables_are_changed_and_not_replaced_unless_they_become_of_another_kind() -> None:
    text = (
        BASE
        + """[base.network]
loss = 0.5
delay = { law = "normal", mean = 100, deviation = 40 }
[[variant]]
name = "steadier"
network.delay.deviation = 1
[[variant]]
name = "constant"
network.delay = { law = "constant", ticks = 7 }
"""
    )
    steadier, constant = (cell.scenario.network for cell in grid(text).cells)
    assert (steadier.loss, constant.loss) == (0.5, 0.5)
    assert steadier.delay == NormalLaw(mean=100, deviation=1)
    assert constant.delay == ConstantLaw(ticks=7)


def test_what_changes_a_run_changes_its_digest_and_nothing_else_does() -> None:
    (cell,) = grid(BASE).cells
    (spelled,) = grid("# a comment\n" + BASE.replace("nodes = 8", "order = 'causal'\nnodes = 8")).cells
    (changed,) = grid(BASE.replace("100", "101")).cells
    assert spelled.digest == cell.digest, "the default, spelled out"
    assert changed.digest != cell.digest


def test_larger_cells_have_more_work() -> None:
    rate = BASE.replace('kind = "once", window = 100', 'kind = "rate", mean_gap = 10, count = 50')
    works = [[cell.work for cell in grid(text + "[grid]\nnodes = [8, 64, 512]").cells] for text in (BASE, rate)]
    assert all(work == sorted(work) and len(set(work)) == 3 for work in works)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("experiment = \n", "grid.toml, line 1, column 14: invalid value"),
        ("", "grid.toml: the key 'experiment' is missing"),
        ('experiment = "a/b"\n[base]\nnodes = 8', "line 1: experiment: expected a name of letters"),
        ('experiment = "try"', "expected either a table [base] with a scenario in it, or the name of a scenario file"),
        ('experiment = "try"\nscenario = "gone.toml"', "line 2: scenario: there is no scenario at gone.toml"),
        (BASE + "[gird]\nnodes = [8]", "line 5: gird: there is no such key (did you mean 'grid'?)"),
        (BASE + "[grid]\nnodes = 8", "line 6: grid.nodes: expected a list of values, not 8; for example: nodes = [8]"),
        (BASE + "[grid]\nnodes = []", "line 6: grid.nodes: expected at least one value"),
        (BASE + "[grid]\nnodes = [8, 8]", "line 6: grid.nodes: 8 is listed twice"),
        (BASE + "[grid]\nnodes = [8, 0]", "line 6: grid.nodes: expected a number of nodes from 1 to 4194304, not 0"),
        (BASE + "[grid]\nnoddes = [8]", "line 6: grid.noddes: there is no such key (did you mean 'nodes'?)"),
        (BASE + "[grid]\nfault = [[]]", "give each a name in a table [[variant]]"),
        (BASE + "[grid]\nseed = [1, 2]", "line 6: grid.seed: this cannot be varied here; list the seeds"),
        (BASE + '[grid]\norder = ["fifo", "fivo"]', "line 6: grid.order: expected one of"),
        (BASE + '[grid]\norder = ["fivo"]', "(in the cell with scenario_order fivo, seed 1)"),
        (BASE + "[[variant]]\nnodes = 3", "line 5: variant 1: the key 'name' is missing"),
        (BASE + '[[variant]]\nname = "a"\n[[variant]]\nname = "a"', 'line 8: variant 2, name: there is a variant "a"'),
        (BASE + '[[variant]]\nname = "a"\nnodes = 0', "line 7: variant 1, nodes: expected a number of nodes"),
        (BASE.replace("nodes = 8", "nodes = -1"), "line 3: base.nodes: expected a number of nodes"),
        (BASE.replace("[base]", "seeds = []\n[base]"), "line 2: seeds: expected a list of seeds, not []"),
        (BASE.replace("[base]", "seeds = [1, 1]\n[base]"), "line 2: seeds: a seed is listed twice"),
        (BASE.replace("[base]", "seeds = [1]\nrepetitions = 2\n[base]"), "leave out seeds or repetitions"),
        (BASE.replace("[base]", "repetitions = 19999\n[base]") + "[grid]\nnodes = [1, 2]", "this makes 39,998 cells"),
    ],
)
def test_a_mistake_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        grid(text)
    assert complaint in str(raised.value)


def test_a_mistake_in_the_scenarios_own_file_is_looked_for_there(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("nodes = 4\norder = 'fivo'\nworkload = { kind = 'once' }")
    with pytest.raises(UsageError, match=r"base\.toml, line 2: order: expected one of"):
        grid('experiment = "try"\nscenario = "base.toml"\n[grid]\nnodes = [4, 6]', tmp_path / "grid.toml")


def test_a_grid_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no grid at"):
        load_grid(tmp_path / "gone.toml")
