"""The promises to a run, as the metadata of its trace lists them.

They depend on the protocol, on the orders of publications, and on the faults that the run must survive. The writer of a
trace knows them and stores them (under ``promised``); judges read them, and need to know no scenario and no fabric. The
rows themselves tell which nodes crashed, left or restarted, and which publications nodes reported as lost.
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
"""The metadata key of a contract."""

UNJUDGED = "unjudged"
"""The metadata key of the reason why there is none."""

TOLD_NEVER = "never"
TOLD_FAILED = "failed"
TOLD_UNKEPT = "unkept"
TOLD_ALWAYS = "always"
TOLD = (TOLD_NEVER, TOLD_FAILED, TOLD_UNKEPT, TOLD_ALWAYS)

CUT = "cut"
FINISHED = "finished"


@dataclass(frozen=True)
class Contract:
    """The promises to a run, and how a judge reads its rows."""

    fabric: str
    protocol: str
    nodes: int = 0
    """The number of nodes, if it does not change."""
    everybody: bool = False
    """Whether all nodes are members of everything."""
    default: str = ORDER_NAMES[CAUSAL]
    """The order by which publications without a named one are judged."""
    always: tuple[str, ...] = ()
    """The promises that hold at every moment."""
    at_end: tuple[str, ...] = ()
    """The promises that hold when nothing is left to do."""
    remembers: bool = False
    """Whether a restarted node continues where it was. Otherwise it is a new process, which need not receive what its
    earlier incarnations should have received.
    """
    told: str = TOLD_NEVER
    """The publications that a node may report as lost instead of delivering them: those of failed nodes, those of them
    that no remaining member has delivered, or all.
    """
    holes_in: str | None = None
    """The order of publications that a node may always report as lost."""
    counts_all: bool = False
    """Whether a node that passes over a number of a source must report it."""
    leavers: bool = False
    """Whether leaving nodes are judged too: they must not leave out a publication that something they delivered
    follows.
    """
    apart: tuple[int, ...] = ()
    """The nodes of whose publications only the total ones are in one order with others."""
    weaker_pass: bool = False
    """Whether that holds for all nodes."""
    secured: bool = False
    """Whether weaker publications are in one order with total ones only if a majority had them in time;
    :mod:`antiphon.audit.majorities` finds these in the rows about epochs.
    """
    all_asked: bool = False
    """Whether publications of every order start when they are requested, because they wait for a majority."""
    loose_sessions: bool = False
    """Whether a fifo or causal publication may overtake an earlier one of its publisher that waits for a key: a total
    one, or one without order. Then both orders are judged among fifo and causal publications alone.
    """
    returns: bool = False
    """Whether restarted nodes continue to publish under their number. Each incarnation is judged as a node of its own.
    """
    spaces: tuple[tuple[int, ...], ...] = ()
    """The spaces: the topics of each have causal order across them."""

    def checks(self, stopped: str) -> tuple[str, ...]:
        """The promises that apply to a run that ended like this: ``finished``, or at a limit.

        Publications that a limit cut off need not be delivered; but none may be left out before something that follows
        it.
        """
        if stopped == FINISHED:
            return self.always + self.at_end
        return self.always + tuple(name for name in self.at_end if name == COMPLETENESS)

    def as_metadata(self) -> dict[str, Any]:
        """The form in the metadata of a trace."""
        return asdict(self)


def contract_in(about: Mapping[str, Any]) -> Contract | None:
    """The contract in the metadata of a trace; None in traces of earlier versions."""
    said = about.get(PROMISED)
    if said is None:
        return None
    names = {field.name for field in fields(Contract)}
    if not isinstance(said, dict) or not {"fabric", "protocol"} <= said.keys() or not said.keys() <= names:
        raise UsageError(
            "the promises in the metadata of the trace are not known to this version; write the trace again"
        )
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    contract = Contract(**found)
    if contract.told not in TOLD or contract.default not in ORDER_NAMES:
        raise UsageError(f"the trace has an unknown value {contract.told!r} of told; known are {', '.join(TOLD)}")
    return contract
