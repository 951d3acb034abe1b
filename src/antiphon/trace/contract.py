"""What was promised to a run, as the metadata of its trace says it.

Which promises a run has depends on the protocol, on the orders of what is published, and on what the run was to
survive. Whoever writes a trace knows that, and writes it down (under ``promised``); judges read it, and need to know no
scenario and no fabric. Who crashed, left or came back, and which publications nodes said to be lost, stands in the
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from antiphon.kernel.errors import UsageError
from antiphon.kernel.message import CAUSAL, ORDER_NAMES

COMPLETENESS = "completeness"
HOLES = "holes"
STUCK = "stuck"
REQUESTS = "requests"
TOTAL_ORDER = "total"

PROMISED = "promised"
"""The key of the metadata under which a contract stands."""

UNJUDGED = "unjudged"
"""The key under which stands why there is none."""

TOLD_NEVER = "never"
TOLD_FAILED = "failed"
TOLD_ALWAYS = "always"
TOLD = (TOLD_NEVER, TOLD_FAILED, TOLD_ALWAYS)

CUT = "cut"
FINISHED = "finished"


@dataclass(frozen=True)
class Contract:
    """What a run was to keep, and how a judge is to look at it."""

    fabric: str
    protocol: str
    nodes: int = 0
    """How many there are, if that does not change."""
    everybody: bool = False
    """Whether all nodes are members of everything."""
    default: str = ORDER_NAMES[CAUSAL]
    """By which order publications are judged that name none."""
    always: tuple[str, ...] = ()
    """The promises that hold at every moment."""
    at_end: tuple[str, ...] = ()
    """Those that hold when nothing is left to do."""
    remembers: bool = False
    """Whether a node that restarts goes on where it was. Otherwise it is a new process, which is owed nothing of what
    its earlier lives were owed."""
    told: str = TOLD_NEVER
    """Whose publications a node may say to be lost instead of delivering them: those of nodes that failed, or all."""
    holes_in: str | None = None
    """The order of publications that a node may always say to be lost."""
    counts_all: bool = False
    """Whether a node that passes over a number of a source must say so."""
    leavers: bool = False
    """Whether those are judged too who leave: what follows something that they delivered must not be left out."""
    apart: tuple[int, ...] = ()
    """The nodes of whose publications only the total ones are in one order with others."""
    weaker_pass: bool = False
    """Whether that holds for all nodes."""
    secured: bool = False
    """Whether weaker publications are in one order with total ones only if a majority had them in time; the rows about
    epochs say which these are (:mod:`antiphon.audit.majorities`)."""
    all_asked: bool = False
    """Whether publications of every order start when they are asked for, since they wait for a majority."""
    returns: bool = False
    """Whether nodes that return publish on under their number. Each of their lives is judged as a node of its own."""

    def checks(self, stopped: str) -> tuple[str, ...]:
        """The promises that apply to a run that ended like this: ``finished``, or at a limit.

        What a limit cut off is not owed any more; but nothing may be left out before something that follows it.
        """
        if stopped == FINISHED:
            return self.always + self.at_end
        return self.always + tuple(name for name in self.at_end if name == COMPLETENESS)

    def as_metadata(self) -> dict[str, Any]:
        """What the metadata of a trace says."""
        return asdict(self)


def contract_in(about: Mapping[str, Any]) -> Contract | None:
    """What the metadata of a trace says about what was promised; nothing in traces of earlier versions."""
    said = about.get(PROMISED)
    if said is None:
        return None
    names = {field.name for field in fields(Contract)}
    if not isinstance(said, dict) or not {"fabric", "protocol"} <= said.keys() or not said.keys() <= names:
        raise UsageError("the trace does not say what was promised in words that are known here; write it again")
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    contract = Contract(**found)
    if contract.told not in TOLD or contract.default not in ORDER_NAMES:
        raise UsageError(f"the trace says that losses are told {contract.told!r}; known are {', '.join(TOLD)}")
    return contract
