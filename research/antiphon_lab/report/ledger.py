"""The ledger: every number that a document publishes, with what was measured beside it, or the reason why nothing was.

A number may have several rows, such as one per size. Each is an entry of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from antiphon_lab.report.stored import Result, StoredRow
from antiphon_lab.reproduction.documents import Number, document, document_names
from antiphon_lab.reproduction.verdicts import VERDICTS

NOT_MEASURED = "no report has it; run antiphon reproduce --all"


class Entry(msgspec.Struct, frozen=True):
    """One claim of a document, and one row about it; without a row ``reason`` says why there is none."""

    key: str
    claim: str
    document: str
    where: str
    published: float
    unit: str
    measured: float | None = None
    interval: tuple[float | None, float | None] | None = None
    because: str | None = None
    verdict: str | None = None
    reason: str | None = None
    experiment: str | None = None
    label: str | None = None
    seconds: float | None = None


def claims() -> Iterator[tuple[str, Number]]:
    """Every published number with the authors and the year of its document."""
    for name in document_names():
        found = document(name)
        place = f"{found.authors.split(',')[0]}, {found.year}"
        for number in found.numbers.values():
            yield place, number
        for table in found.tables.values():
            for number in table.numbers():
                yield place, number


def ledger(results: Sequence[Result]) -> list[Entry]:
    """All claims, in the order of the documents."""
    rows: dict[str, list[tuple[Result, StoredRow]]] = {}
    for result in results:
        for row in result.rows:
            if row.key:
                rows.setdefault(row.key, []).append((result, row))
    entries: list[Entry] = []
    for place, number in claims():
        about = (number.key, number.says, place, number.where, number.value, number.unit)
        found = rows.get(number.key)
        if found is None:
            entries.append(Entry(*about, reason=number.unmeasured or NOT_MEASURED))
        entries += [
            Entry(
                *about,
                measured=row.measured,
                interval=row.interval,
                because=row.because,
                verdict=row.verdict,
                reason=row.reason,
                experiment=result.name,
                label=row.label,
                seconds=result.seconds,
            )
            for result, row in found or ()
        ]
    return entries


def counts_of(entries: Sequence[Entry]) -> dict[str, int]:
    """How many entries have each verdict, and how many have no row."""
    counts = {verdict: sum(entry.verdict == verdict for entry in entries) for verdict in VERDICTS}
    return {**counts, "no row": sum(entry.label is None for entry in entries)}
