"""Arrows point one way, no modules import each other in a circle, and inheritance stays shallow.

The rule is the table below. Protocols are pure state machines, so
what they may import from outside is listed too, and nothing in that list can wait, open, look at a clock or draw from
a global generator. The checker reads the sources and imports nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "antiphon"

PURE = frozenset({
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "itertools", "math",
    "operator", "typing", "librt", "mypy_extensions",
})  # fmt: skip
"""What state machines are made of."""

WORLDLY = frozenset({
    "asyncio", "concurrent", "multiprocessing", "pyspark", "random", "secrets", "select", "selectors", "socket", "ssl",
    "subprocess", "threading",
})  # fmt: skip
"""What a deterministic host in one thread must not touch either."""


@dataclass(frozen=True)
class Rule:
    """What a package may import: packages of Antiphon, and from outside only these, or all but those."""

    inside: frozenset[str]
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()


def inside(*packages: str) -> frozenset[str]:
    return frozenset(packages)


PROTOCOLS = ("kernel", "orders", "fabrics", "placement", "membership", "sessions", "spaces", "streams")
"""Pure: state machines and what they are made of."""

HOST = (*PROTOCOLS, "runtime", "transport", "api", "storage")
"""What nodes and clients stand on, each of which imports only what is to its left."""

LIVE = (*HOST, "node", "client")
JUDGES = ("trace", "audit", "simulator", "torture")
ROOT = ""
"""The package ``antiphon`` itself, which offers the public surface."""

NO_SPARK = frozenset({"pyspark"})

# The longest name that fits a module decides.
RULES = {
    "kernel": Rule(inside("kernel"), only=PURE),
    "orders": Rule(inside("kernel", "orders"), only=PURE),
    # Its options are data descriptions, which hosts check.
    "fabrics": Rule(inside("kernel", "orders", "spaces", "fabrics"), only=PURE | {"msgspec"}),
    # Of fabrics it needs the shape of the cube.
    "placement": Rule(inside("kernel", "fabrics", "placement"), only=PURE),
    # Its messages are data descriptions, which hosts encode and check.
    "membership": Rule(inside("kernel", "orders", "fabrics", "placement", "membership"), only=PURE | {"msgspec"}),
    "sessions": Rule(inside(*PROTOCOLS), only=PURE | {"msgspec"}),
    "spaces": Rule(inside("kernel", "spaces"), only=PURE),
    "streams": Rule(inside("kernel", "streams"), only=PURE | {"msgspec"}),
    "trace": Rule(
        inside("kernel", "trace"), only=PURE | {"contextlib", "json", "numpy", "os", "pathlib", "pyarrow", "types"}
    ),
    "trace.recorder": Rule(inside("kernel", "trace"), only=PURE),
    # Of a fabric a judge needs its description alone.
    "audit": Rule(
        inside("kernel", "fabrics", "trace", "audit"), only=PURE | {"msgspec", "numpy", "pathlib", "pyarrow"}
    ),
    # Spark is imported where it is asked for; here its session has a type.
    "audit.auditor": Rule(
        inside("kernel", "trace", "audit"), only=PURE | {"contextlib", "pathlib", "pyarrow", "pyspark", "time"}
    ),
    "audit.spark": Rule(inside("kernel", "trace", "audit")),
    "audit.streaming": Rule(inside("kernel", "audit", "spark")),
    "audit.streaming.order_watch": Rule(inside("kernel", "audit"), only=PURE | {"msgspec"}),
    "plugins": Rule(inside(), only=frozenset({"__future__", "functools", "importlib", "typing"})),
    "simulator": Rule(inside(*PROTOCOLS, "trace", "audit", "plugins", "simulator"), never=WORLDLY),
    "simulator.engine": Rule(inside(*PROTOCOLS, "trace", "simulator"), only=PURE | {"gc"}),
    "simulator.engine.calendar": Rule(inside("simulator"), only=PURE),
    "simulator.network": Rule(inside("kernel", "simulator"), only=PURE),
    "runtime": Rule(inside("kernel", "runtime"), never=NO_SPARK),
    "transport": Rule(inside(*PROTOCOLS, "runtime", "transport"), never=NO_SPARK),
    "api": Rule(inside("kernel", "sessions", "streams", "runtime", "api"), never=NO_SPARK),
    "storage": Rule(inside("kernel", "sessions", "streams", "runtime", "transport", "api", "storage"), never=NO_SPARK),
    "node": Rule(inside(*HOST, "node", "trace"), never=NO_SPARK),
    # A client is light: it needs no store, no columns of traces, and of membership nothing but the form of messages.
    "client": Rule(
        inside("kernel", "membership", "sessions", "streams", "runtime", "transport", "api", "client"),
        never=NO_SPARK | {"numpy", "pyarrow", "sqlite3"},
    ),
    "regions": Rule(inside("kernel", "placement", "api"), never=NO_SPARK),
    "sync": Rule(inside("kernel", "runtime", "streams", "api", "client", "node"), never=NO_SPARK),
    # Declarations, calls and stores know nothing of hosts; replicas and proxies run on nodes and clients.
    "services": Rule(inside(*LIVE, "services"), never=NO_SPARK),
    # It shifts clocks and reseeds the global generator to find operations that depend on them.
    "services.advise": Rule(inside(*PROTOCOLS, *JUDGES, "services"), never=WORLDLY - {"random"}),
    "services.calls": Rule(inside("kernel", "services"), only=PURE | {"msgspec"}),
    "services.declaration": Rule(inside("kernel", "services"), only=PURE | {"msgspec"}),
    "services.description": Rule(
        inside("kernel", "services"), only=PURE | {"inspect", "msgspec", "sys", "types", "uuid"}
    ),
    "services.applied": Rule(inside("kernel", "services"), only=PURE | {"msgspec"}),
    "services.frames": Rule(inside("kernel", "services"), only=PURE | {"msgspec"}),
    "services.recent": Rule(inside("kernel", "services"), only=PURE),
    "services.results": Rule(inside("kernel", "services"), only=PURE | {"msgspec"}),
    "services.replica": Rule(inside("kernel", "services"), only=PURE | {"msgspec"}),
    "services.replica_store": Rule(inside("kernel", "services"), only=PURE | {"msgspec"}),
    "services.marks": Rule(inside("kernel", "services"), only=PURE),
    "services.store": Rule(inside("kernel", "services"), only=PURE | {"contextlib", "msgspec"}),
    # For tests of users.
    "testing": Rule(inside(*LIVE, "testing"), never=NO_SPARK),
    "maelstrom": Rule(inside(*HOST, "maelstrom"), never=NO_SPARK),
    "mqtt": Rule(inside(*LIVE, "mqtt", ROOT), never=NO_SPARK),
    # State machines and codecs.
    "mqtt.protocol": Rule(inside("kernel", "mqtt"), only=PURE),
    "spark": Rule(inside(*LIVE, "spark", ROOT)),
    "torture": Rule(inside(*LIVE, *JUDGES, ROOT), never=NO_SPARK),
    # Replicas and callers at real nodes in virtual time.
    "torture.services": Rule(inside(*LIVE, *JUDGES, "services", "testing", ROOT), never=NO_SPARK),
    "torture.schedules": Rule(inside(*PROTOCOLS, *JUDGES), never=WORLDLY),
    "torture.clients": Rule(inside(*PROTOCOLS, *JUDGES), never=WORLDLY),
    "pipeline": Rule(inside(*LIVE, *JUDGES, "pipeline", "spark", ROOT)),
    "console": Rule(inside(*LIVE, *JUDGES, "console", ROOT), never=NO_SPARK),
    "console.live.picture": Rule(inside("kernel", "fabrics", "console"), only=PURE),
    "console.diagram": Rule(inside("kernel", "trace", "console"), only=PURE | {"numpy", "pyarrow"}),
    "console.guard": Rule(inside("kernel", "console"), only=PURE),
    "cli": Rule(
        inside(*LIVE, *JUDGES, "console", "maelstrom", "mqtt", "pipeline", "services", "spark", "plugins", "cli", ROOT)
    ),
    ROOT: Rule(inside(*LIVE, "services"), never=NO_SPARK),
    "__main__": Rule(inside("cli"), only=frozenset({"__future__"})),
}


def rule_for(module: str) -> Rule | None:
    """The rule of a module, named without ``antiphon.``; none if its package is not in the table."""
    name = module
    while name not in RULES and "." in name:
        name = name.rpartition(".")[0]
    return RULES.get(name)


def imported(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Everything that a module imports, at any depth, with its line; ``package`` resolves relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parents = f"antiphon.{package}".rstrip(".").split(".")
            prefix = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*prefix, *([node.module] if node.module else [])])
            # A name of the root may be one of its packages; of all others the module is enough.
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "antiphon" else [base]
            yield from ((node.lineno, name) for name in names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            argument = node.args[0] if node.args else None
            named = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            yield node.lineno, str(ast.literal_eval(argument)) if named and argument is not None else "a computed name"


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module imports against the table; ``module`` is named without ``antiphon.``."""
    rule = rule_for(module)
    if rule is None:
        return [f"antiphon.{module}: its package has no rule; add it to the table"]
    found = []
    package = module if is_package else module.rpartition(".")[0]
    for line, name in imported(ast.parse(source), package):
        first, _, rest = name.partition(".")
        if first == "antiphon":
            target = rest.partition(".")[0]
            wrong = (target if target in RULES else ROOT) not in rule.inside
        elif first == "antiphon_lab":
            # Other distributions are found by their entry points.
            wrong = True
        else:
            wrong = first in rule.never or (rule.only is not None and first not in rule.only)
        if wrong:
            found.append(f"antiphon.{module}:{line} imports {name}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    """All modules of the package, named without ``antiphon.``."""
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_no_module_imports_against_the_arrows() -> None:
    checked = dict(modules())
    assert {
        "kernel.process",
        "orders.order",
        "fabrics.cube.topology",
        "simulator.engine.engine",
        "cli.main",
    } <= checked.keys()
    found = [
        violation
        for module, path in checked.items()
        for violation in violations(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]
    assert found == []


def test_arrows_point_one_way() -> None:
    """The table itself has no circle: of two packages at most one may import the other."""
    packages = [name for name in RULES if "." not in name]
    for one in packages:
        for other in packages:
            both = one in RULES[other].inside and other in RULES[one].inside
            assert one == other or not both, f"{one} and {other} may import each other"


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("kernel.process", "import asyncio", "antiphon.kernel.process:1 imports asyncio"),
        ("kernel.process", "import os.path", "antiphon.kernel.process:1 imports os.path"),
        ("kernel.message", "from antiphon.orders.order import Order", "imports antiphon.orders.order"),
        ("kernel.message", "from ..orders import order", "imports antiphon.orders"),
        ("kernel", "from antiphon import orders", "imports antiphon.orders"),
        ("orders.fifo", "import time", "imports time"),
        ("orders.fifo", "def f():\n    from random import random", "antiphon.orders.fifo:2 imports random"),
        ("orders.fifo", "import antiphon.fabrics.cube.topology", "imports antiphon.fabrics.cube.topology"),
        ("fabrics.cube.view", "from datetime import datetime", "imports datetime"),
        ("fabrics.cube.view", "if TYPE_CHECKING:\n    import socket", "imports socket"),
        ("fabrics.cube.view", "from ...simulator.engine import Engine", "imports antiphon.simulator.engine"),
        ("fabrics.cube.view", "import numpy as np", "imports numpy"),
        ("fabrics.cube.view", "import importlib\nimportlib.import_module('threading')", "imports threading"),
        ("fabrics.gossip.process", "__import__(name)", "imports a computed name"),
        ("fabrics.tree.broker", "import pyspark.sql", "imports pyspark.sql"),
        ("fabrics.cube.view", "from antiphon import __version__", "imports antiphon.__version__"),
        ("membership.joining", "import asyncio", "imports asyncio"),
        (
            "membership.full_mesh",
            "from antiphon.transport.links import OutgoingLink",
            "imports antiphon.transport.links",
        ),
        ("membership.cube_members", "from antiphon.storage.disk import Disk", "imports antiphon.storage.disk"),
        ("membership.heartbeats", "import time", "imports time"),
        ("sessions.node_end", "import asyncio", "imports asyncio"),
        ("sessions.resume", "from antiphon.api.batch import Batch", "imports antiphon.api.batch"),
        ("trace.store", "from antiphon.simulator.engine import links", "imports antiphon.simulator.engine"),
        ("trace.store", "from antiphon.orders import Order", "imports antiphon.orders"),
        ("trace.recorder", "import pyarrow", "imports pyarrow"),
        ("simulator.engine.engine", "import time", "imports time"),
        ("simulator.engine.calendar", "from antiphon.kernel.process import Process", "imports antiphon.kernel.process"),
        ("simulator.scenario.run", "import random", "imports random"),
        ("simulator.scenario.run", "from antiphon.node.node import Node", "imports antiphon.node.node"),
        ("node.node", "from antiphon.simulator.engine import links", "imports antiphon.simulator.engine"),
        ("transport.links", "from antiphon.api.batch import Batch", "imports antiphon.api.batch"),
        ("storage.log", "from antiphon.node.node import Node", "imports antiphon.node.node"),
        ("client.client", "if TYPE_CHECKING:\n    from antiphon.node.node import Node", "imports antiphon.node.node"),
        ("client.client", "import numpy", "imports numpy"),
        ("audit.oracle", "from antiphon.orders.vectors import CausalVectors", "imports antiphon.orders.vectors"),
        ("audit.oracle", "def f():\n    import pyspark", "antiphon.audit.oracle:2 imports pyspark"),
        ("audit.verdict", "from antiphon.simulator.scenario import scenario", "imports antiphon.simulator.scenario"),
        ("torture.campaign", "import pyspark", "imports pyspark"),
        ("pipeline.sweep", "from antiphon.cli.main import app", "imports antiphon.cli.main"),
        ("cli.main", "import antiphon_lab.cli", "imports antiphon_lab.cli"),
        ("surprise.module", "", "its package has no rule; add it to the table"),
    ],
)
def test_the_checker_finds_a_planted_violation(module: str, source: str, complaint: str) -> None:
    found = violations(module, source)
    assert any(complaint in violation for violation in found), found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kernel.process", "from __future__ import annotations\nfrom typing import Final\nfrom librt.vecs import vec"),
        ("orders.fifo", "from antiphon.kernel.message import ProtocolMessage\nfrom .order import Order"),
        ("fabrics.cube.view", "from antiphon.orders import Order\nfrom collections.abc import Callable"),
        ("simulator.engine.engine", "import gc\nfrom antiphon.trace.recorder import Recorder"),
        ("trace.store", "import numpy as np\nimport pyarrow.parquet as pq"),
        ("node.node", "import asyncio\nfrom antiphon.fabrics.cube import TreeBroadcast"),
        ("cli.main", "import antiphon\nfrom antiphon.pipeline import sweep\nimport importlib"),
    ],
)
def test_the_checker_finds_nothing_where_there_is_nothing(module: str, source: str) -> None:
    assert violations(module, source) == []
