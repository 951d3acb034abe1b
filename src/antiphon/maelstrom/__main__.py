"""``python -m antiphon.maelstrom --workload NAME``: one node, with only the imports that it needs.

``antiphon maelstrom node`` runs the same; the runner starts dozens of these at once.
"""

from __future__ import annotations

import sys

from antiphon.kernel.errors import AntiphonError, UsageError
from antiphon.maelstrom.loop import run_node
from antiphon.maelstrom.services import options_for

OPTIONS = frozenset({"--workload", "--fan-out", "--gather-ms", "--patience-ms"})


def main(arguments: list[str]) -> None:
    """Run a node; the options are those of ``antiphon maelstrom node``."""
    names = arguments[::2]
    if len(arguments) % 2 or "--workload" not in names or not set(names) <= OPTIONS:
        raise UsageError(f"give --workload and a name, and numbers with any of {', '.join(sorted(OPTIONS))}")
    values = dict(zip(names, arguments[1::2], strict=True))
    workload = values.pop("--workload")
    numbers = {name: int(value) for name, value in values.items()}
    options = options_for(
        workload, numbers.get("--fan-out", 24), numbers.get("--gather-ms", 50), numbers.get("--patience-ms")
    )
    run_node(workload, options)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AntiphonError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
