"""The page about the settings of a node, from the fields of :class:`Settings` and the sentences below them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any, Final

from antiphon.fabrics.registry import FABRICS
from antiphon.node.settings import Settings

INTRODUCTION: Final = """\
# Settings of a node

Each setting is a flag of `antiphon node` (with hyphens: `--lost-seconds`), a key in the file of `--config FILE.toml`,
and an argument of `antiphon.start`. Flags win over the file. An unknown key is refused, and the error suggests the
nearest names. No setting changes while a node runs. The files of certificates, rights and revoked certificates are
read again when they change.

| setting | default | meaning |
|---|---|---|
"""

END: Final = """
`tree` and `gossip` are tables with settings of their own: [a tree of brokers](../operations.md#a-tree-of-brokers) and
[gossip](../operations.md#gossip) list them. [Durability](../concepts/durability.md) explains `data`, `durability` and
`keep`, [what bounds memory](../operations.md#what-bounds-memory) the sizes, and [security](../security.md) everything
about certificates and rights.
"""


def sentences() -> dict[str, str]:
    """The sentence below each field."""
    (kind,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(kind, ast.ClassDef)
    found = {}
    for field, below in zip(kind.body, kind.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant), field.target.id
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def in_toml(value: Any) -> str:
    """A default as it stands in a file."""
    words = {None: "none", True: "`true`", False: "`false`"}
    return words[value] if value is None or isinstance(value, bool) else f"`{value}`"


def rows() -> Iterator[str]:
    """A row for each setting; the table of a fabric has the name of the fabric."""
    defaults = Settings()
    for name, sentence in sentences().items():
        if name == "table":
            for fabric in FABRICS.values():
                if fabric.has_table:
                    yield f"| `{fabric.name}` | none | With fabric `{fabric.name}`: its table, or a file that has it. |"
            continue
        yield f"| `{name}` | {in_toml(getattr(defaults, name))} | {sentence.replace('``', '`')} |"


def page() -> str:
    """The whole page."""
    assert set(sentences()) == set(Settings.__struct_fields__)
    return INTRODUCTION + "\n".join(rows()) + "\n" + END
