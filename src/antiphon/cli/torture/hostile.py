"""``antiphon torture --hostile``: a live cluster under attack (:mod:`antiphon.torture.hostile.campaign`)."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from antiphon.cli import output


def torture_hostile(fabric: str, inputs: int, seed: int, as_json: bool) -> None:
    """Attack a cluster, and report."""
    import antiphon
    from antiphon.torture.hostile.campaign import HostileCampaign

    begun = time.perf_counter()
    progress = partial(output.progress, f"torture {fabric}", inputs)
    with tempfile.TemporaryDirectory(prefix="antiphon-hostile-") as directory:
        campaign = HostileCampaign(fabric, inputs, seed, Path(directory), tell, progress)
        antiphon.run(campaign.run())
    findings = campaign.findings
    seconds = time.perf_counter() - begun
    found: dict[str, Any] = {
        "fabric": fabric,
        "seconds": seconds,
        "inputs_per_second": findings.inputs / seconds,
        **vars(findings),
        "kinds": dict(findings.kinds),
        "outcomes": dict(findings.outcomes),
    }
    output.end_with(found, as_json, show, bool(findings.violations))


def tell(index: int, line: str) -> None:
    """Print the errors that a node logs; nothing else."""
    output.errors.print(f"node {index}: {line}", markup=False, highlight=False)


def show(found: dict[str, Any]) -> None:
    """Print a result for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    rate = f"{found['inputs_per_second']:,.0f} per second"
    table.add_row("inputs", f"{found['inputs']:,} in {found['seconds']:.1f} s, {rate}")
    for key in ("kinds", "outcomes"):
        table.add_row(key, ", ".join(f"{name} {count:,}" for name, count in sorted(found[key].items())))
    table.add_row("refused", f"{found['refused_connections']:,} connections, as the nodes count them")
    about = f"{found['published']:,} published, {found['received']:,} received"
    table.add_row("honest clients", f"{about}, {found['longest_seconds'] * 1000:,.0f} ms at most")
    memory = (found["megabytes_warm"], found["megabytes_highest"], found["megabytes_at_end"])
    table.add_row("memory", "{:.0f} MB after a tenth, {:.0f} MB at most, {:.0f} MB at the end".format(*memory))
    table.add_row("violations", "; ".join(found["violations"][:5]) or "none")
    output.console.print(table, markup=False)
