"""``antiphon torture --hostile``: a live cluster under attack.

By strangers (:mod:`antiphon.torture.hostile.campaign`), or by tenants and a node that lies
(:mod:`antiphon.torture.hostile.tenant_campaign`).
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from antiphon.cli import output

if TYPE_CHECKING:
    from antiphon.torture.hostile.honest import HonestFindings


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
        **figures_of(findings),
        "kinds": dict(findings.kinds),
        "outcomes": dict(findings.outcomes),
    }
    output.end_with(found, as_json, show, bool(findings.violations))


def torture_by_tenants(fabric: str, attack_seconds: float, seed: int, as_json: bool) -> None:
    """Attack a cluster with clients that have a token, and with a node that lies, and report."""
    import antiphon
    from antiphon.torture.hostile.tenant_campaign import HONEST_P99_SECONDS, TenantCampaign

    progress = partial(output.progress, f"torture {fabric}", int(attack_seconds))
    with tempfile.TemporaryDirectory(prefix="antiphon-hostile-") as directory:
        campaign = TenantCampaign(fabric, attack_seconds, seed, Path(directory), tell, progress, HONEST_P99_SECONDS)
        antiphon.run(campaign.run())
    findings = campaign.findings
    found: dict[str, Any] = {
        "fabric": fabric,
        "seed": seed,
        **figures_of(findings),
        "honest_ms": {f"p{share}": 1000 * findings.percentile_seconds(share / 100) for share in (50, 99, 99.9)},
        "attacks": dict(findings.attacks),
        "refusals": {attack: dict(reasons) for attack, reasons in sorted(findings.refusals.items())},
        "quota_hits": dict(findings.quota_hits),
    }
    output.end_with(found, as_json, show_tenants, bool(findings.violations))


def figures_of(findings: HonestFindings) -> dict[str, Any]:
    """The figures of a campaign; single waits are too many to be shown."""
    return {name: value for name, value in vars(findings).items() if name != "waits"}


def show_tenants(found: dict[str, Any]) -> None:
    """Print the result of a campaign of tenants for people."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("attacks", f"{sum(found['attacks'].values()):,} in {found['seconds']:.0f} s, {found['lies']:,} lies")
    for attack, count in sorted(found["attacks"].items()):
        reasons = found["refusals"].get(attack, {})
        table.add_row(attack, f"{count:,}: " + (", ".join(f"{each} {n:,}" for each, n in reasons.items()) or "let in"))
    about = f"{found['published']:,} published, {found['received']:,} received"
    waits = ", ".join(f"{name} {value:,.0f} ms" for name, value in found["honest_ms"].items())
    table.add_row("honest clients", f"{about}, {waits}, {found['longest_seconds'] * 1000:,.0f} ms at most")
    table.add_row("health probes", f"{found['probes']:,}, {found['slowest_probe_seconds']:.2f} s at most")
    for key in ("megabytes_warm", "megabytes_highest", "megabytes_at_end"):
        table.add_row(key.replace("_", " "), ", ".join(f"{value:.0f}" for value in found[key]))
    table.add_row("at quotas", ", ".join(f"{name} {count:,}" for name, count in sorted(found["quota_hits"].items())))
    table.add_row("violations", "; ".join(found["violations"][:5]) or "none")
    output.console.print(table, markup=False)


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
