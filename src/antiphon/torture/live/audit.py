"""Audits a finished live campaign: the journals of applications, and the disks of killed nodes.

The directory of ``antiphon torture --live`` holds no traces of nodes, because a killed node leaves none. It holds the
journals of clients, which span all incarnations of nodes, and the disk contents of nodes when they were killed. The
audit turns these into traces in which an application takes the role of a node (:mod:`antiphon.torture.live.judging`),
and judges them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from antiphon.audit.auditor import Judge
from antiphon.audit.report import DURABILITY, Audit, Check, verdict_of
from antiphon.torture.live.judging import CHECKS, PromiseVerdict, judge_journals, read_circumstances


def is_campaign(paths: Sequence[Path]) -> bool:
    """Whether a path is the directory of a live campaign."""
    return len(paths) == 1 and (paths[0] / "journals").is_dir()


def audit_campaign(directory: Path, judge: Judge) -> Audit:
    """Judge a campaign again, from its directory."""
    started = time.perf_counter()
    audits: list[Audit] = []

    def audit(files: list[Path]) -> Audit:
        audits.append(judge(files))
        return audits[-1]

    circumstances = read_circumstances(directory)
    with tempfile.TemporaryDirectory(prefix="antiphon-audit-") as traces:
        found = judge_journals(directory, circumstances, audit, Path(traces))
    # Beside the checks of a trace, a campaign has checks of its own.
    checks = {name: check_of(found.verdicts[name]) if name in found.verdicts else Check(True) for name in CHECKS}
    checks[DURABILITY].applies = any((directory / "remains").glob("*.txt"))
    for name, check in checks.items():
        check.violations = found.violations[name]
        examples = [example.removeprefix(f"{name}: ") for example in found.examples if example.startswith(f"{name}: ")]
        check.example = examples[0] if examples else None
    seconds = time.perf_counter() - started
    return Audit(found.accepted, found.deliveries, seconds, checks, verdict_of(checks), [], audits[0].judge)


def check_of(verdict: PromiseVerdict) -> Check:
    """The check of one promise, as a value that further evidence can change."""
    assert isinstance(verdict, Check), "the judge of this command gives these"
    return verdict
