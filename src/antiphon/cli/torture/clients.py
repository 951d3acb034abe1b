"""``antiphon torture --fabric clients``: clusters with clients that lose their nodes and move, in the simulator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.markup import escape

from antiphon.cli import output
from antiphon.kernel.errors import UsageError

if TYPE_CHECKING:
    from antiphon.cli.torture.simulated import TortureOptions


def torture_clients(asked: TortureOptions) -> None:
    """Run schedules of clients on all fabrics, shrink the first failure, and report; exit with 1 if one fails."""
    from antiphon.kernel.message import ORDER_NAMES
    from antiphon.torture.clients.campaign import ClientTally, run_clients, run_one, shrink
    from antiphon.torture.clients.schedules import draw_client_schedule
    from antiphon.torture.processes import cores, sharing
    from antiphon.torture.progress import fresh_seed

    if asked.spark:
        raise UsageError("campaigns of clients run on this machine; leave out --spark")
    if asked.order is not None and asked.order not in ORDER_NAMES:
        raise UsageError(f"there is no order {asked.order!r}; choose from {', '.join(ORDER_NAMES)}, or leave it out")
    if asked.fresh and asked.seed is not None:
        raise UsageError("--fresh draws the first seed; leave out --seed, or --fresh")
    first = fresh_seed(asked.out, asked.seeds) if asked.fresh else 1 if asked.seed is None else asked.seed
    output.warn_if_not_compiled()
    begun = time.perf_counter()
    with sharing(asked.jobs or cores()) as share:
        tally: ClientTally = run_clients(first, asked.seeds, asked.order, None, share)  # type: ignore[arg-type]
    result: dict[str, Any] = {
        "fabric": "clients",
        "first_seed": first,
        "seconds": round(time.perf_counter() - begun, 1),
        **msgspec.to_builtins(tally),
        "smallest": None,
    }
    if tally.failing_seeds:
        schedule = draw_client_schedule(tally.failing_seeds[0], asked.order)
        small = shrink(schedule, next(iter(run_one(schedule))))
        path = asked.out / f"clients-{schedule.seed}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(small), indent=1))
        result["smallest"] = str(path)
    if asked.as_json:
        output.print_json(result)
    else:
        print_result(result)
    if tally.failing_seeds:
        raise typer.Exit(1)


def print_result(result: dict[str, Any]) -> None:
    """The result, for people."""
    fabrics = ", ".join(f"{name} {count}" for name, count in sorted(result["fabrics"].items()))
    output.console.print(
        f"{result['seeds']} schedules ({fabrics}) from seed {result['first_seed']} in {result['seconds']} s: "
        f"{result['messages']} messages, {result['deliveries']} deliveries, {result['moves']} moves of clients, "
        f"{result['gaps']} gaps told"
    )
    if not result["failing_seeds"]:
        output.console.print("no promise to clients was broken")
        return
    output.console.print(f"broken: {result['violations']}; seeds {result['failing_seeds'][:20]}")
    for example in result["examples"][:5]:
        output.console.print(escape(example))
    output.console.print(f"the first failure, made small: {result['smallest']}")
