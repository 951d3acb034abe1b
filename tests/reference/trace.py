"""The page about traces, from the table in the docstring of their module, compared with the schema itself."""

from __future__ import annotations

import re
from typing import Final

from antiphon.trace import store
from antiphon.trace.recorder import DROP_REASONS, EVENT_NAMES

INTRODUCTION: Final = """\
# Traces

`antiphon simulate --trace FILE` and `antiphon node --trace FILE` write a trace: one row for each thing that happened,
in the order in which it happened. `antiphon audit` judges traces, and `antiphon metrics` measures them. A file is
Parquet or Arrow, by its name, so Spark, pandas, DuckDB and others read it too. It appears when it is complete.

| column | type | meaning |
|---|---|---|
"""

END: Final = """
The metadata of the file holds a JSON object under the key `antiphon`: `schema` (the version, {version}), `level`
(`deliveries` or `everything`), and what the writer knew: the scenario, the seed, and the promises of the run. Version 1
had no column `order`, version 2 no column behind it, and version 3 no promises and no rows about losses and the end.

The events, in the order of their numbers: {events}. A copy is dropped because of {reasons}.
"""


def cells() -> dict[str, tuple[str, str]]:
    """Type and meaning of each column, as the docstring has them."""
    text = store.__doc__ or ""
    table = re.split(r"^=+ +=+ +=+$", text, flags=re.MULTILINE)[2]
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in table.strip("\n").splitlines():
        if line[0] != " ":
            name = line.split()[0]
            found[name] = (line[11:30].strip().replace("null.", "nullable"), line[30:].strip())
        else:
            found[name] = (found[name][0], f"{found[name][1]} {line.strip()}")
    return found


def page() -> str:
    """The whole page."""
    columns = cells()
    assert list(columns) == store.SCHEMA.names
    rows = [f"| `{name}` | {kind} | {text.replace('``', '`')} |" for name, (kind, text) in columns.items()]
    end = END.format(
        version=store.SCHEMA_VERSION,
        events=", ".join(f"`{name}`" for name in EVENT_NAMES if name),
        reasons=", ".join(f"`{reason}`" for reason in DROP_REASONS if reason),
    )
    return INTRODUCTION + "\n".join(rows) + "\n" + end
