"""Words for counterexamples: what happens in each order, and what is left."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.services.advise.pairs import Bench, PairScript, State
from antiphon.services.advise.world import Schedule, World
from antiphon.services.calls import BoundCall, decode_result

MOST_KEYS: Final = 6
"""Keys of a state that are shown."""
MOST_CHARACTERS: Final = 60
"""Of a value."""


def both_orders(bench: Bench, script: PairScript) -> list[str]:
    """Two calls in both orders."""
    start = bench.reach(script.before) or bench.empty()
    lines = [f"{call}, at every replica" for call in script.before]
    lines.append(f"{script.one} and {script.other} at the same time")
    for place, calls in (("one replica", (script.one, script.other)), ("another", (script.other, script.one))):
        state, said = start, []
        for call in calls:
            state = bench.after(state, call)
            said.append(f"{call} {outcome(call, state)}")
        lines.append(f"{place}: {', then '.join(said)}; leaves {contents(state)}")
    return lines


def alone(bench: Bench, script: PairScript) -> list[str]:
    """One call that breaks an invariant."""
    start = bench.reach(script.before) or bench.empty()
    state = bench.after(start, script.other)
    return [*map(str, script.before), f"{script.other} {outcome(script.other, state)}; leaves {contents(state)}"]


def schedule(world: World, small: Schedule) -> tuple[str, list[str]]:
    """The failure of a schedule, and the lines that show it."""
    run = world.run(small)
    lines = small.lines()
    if run.differing is None:
        assert run.broken is not None, "only schedules that have failed are explained"
        invariant, node = run.broken
        return f"{invariant} is broken at a replica", [*lines, f"node {node}: {', '.join(run.histories[node])}"]
    for node in run.differing:
        lines.append(f"node {node} applies {', '.join(run.histories[node])}; this leaves {contents(run.states[node])}")
    return "two replicas end with different states", lines


def outcome(call: BoundCall, state: State) -> str:
    """The result of a call, or its exception, in words."""
    try:
        return f"returns {shown(decode_result(call.call, state.result))}"
    except Exception as error:
        return f"raises {type(error).__name__}"


def contents(state: State) -> str:
    """A state: its first keys and values, and the invariant that is broken."""
    found = state.contents()
    said = [f"{key.decode()} = {shown(msgspec.msgpack.decode(value))}" for key, value in found[:MOST_KEYS]]
    if len(found) > MOST_KEYS:
        said.append(f"and {len(found) - MOST_KEYS} more")
    broken = "" if state.broken is None else f" ({state.broken} is broken)"
    return (", ".join(said) or "nothing") + broken


def shown(value: Any) -> str:
    """A value, cut where it is long."""
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
