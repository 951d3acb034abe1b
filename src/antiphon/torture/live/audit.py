"""The audit of a live campaign: what applications wrote down, and what was on the disks of nodes.

The directory that ``antiphon torture --live`` keeps holds no traces of nodes: who is killed leaves none. It holds what
clients of all nodes saw, over all lives of nodes, and what nodes had on their disks when they were killed. Of that
traces are made again in which an application is what a node is elsewhere (:mod:`antiphon.torture.live.judging`), and
judged.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from antiphon.audit.auditor import Judge
from antiphon.audit.report import DURABILITY, Audit, Check, verdict_of
from antiphon.torture.live.judging import CHECKS, Verdict, judge_journals, read_circumstances


def is_campaign(paths: Sequence[Path]) -> bool:
    """Whether this is what a live campaign has kept."""
    return len(paths) == 1 and (paths[0] / "journals").is_dir()


def audit_campaign(directory: Path, judge: Judge) -> Audit:
    """Judge it again, from what was written down."""
    started = time.perf_counter()
    audits: list[Audit] = []

    def audit(files: list[Path]) -> Audit:
        audits.append(judge(files))
        return audits[-1]

    circumstances = read_circumstances(directory)
    with tempfile.TemporaryDirectory(prefix="antiphon-audit-") as traces:
        found = judge_journals(directory, circumstances, audit, Path(traces))
    # Besides what the audit of a trace judges there is what only a campaign knows.
    checks = {name: check_of(found.verdicts[name]) if name in found.verdicts else Check(True) for name in CHECKS}
    checks[DURABILITY].applies = any((directory / "remains").glob("*.txt"))
    for name, check in checks.items():
        check.violations = found.violations[name]
        examples = [example.removeprefix(f"{name}: ") for example in found.examples if example.startswith(f"{name}: ")]
        check.example = examples[0] if examples else None
    seconds = time.perf_counter() - started
    return Audit(found.accepted, found.deliveries, seconds, checks, verdict_of(checks), [], audits[0].judge)


def check_of(verdict: Verdict) -> Check:
    """What the audit of one trace says, to be changed: other evidence may say more."""
    assert isinstance(verdict, Check), "the judge of this command gives these"
    return verdict
