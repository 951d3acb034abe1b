"""The measurements of experiments in traces that they hold in memory.

Quantities that the pipeline measures too are defined once for both (:mod:`antiphon.trace.quantities`), and the tests
compare the two. The published experiments leave theirs partly open; these are the readings that reproduce their
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.kernel.errors import UsageError

ACKNOWLEDGEMENTS = ("Acknowledgement", "Ack")
"""The names of acknowledgements in traces: of broadcasts, and of VCube-PS as published."""


def tree_sends(trace: pa.Table, root: int | None) -> pa.Table:
    """The copies that go down a tree: every ``send`` of a publication except those to a single root.

    Acknowledgements are not publications. Where a single root serves all nodes, only the first hop of a publication
    goes to it, and the documents count its queue and not that hop.
    """
    is_copy = pc.invert(pc.is_in(trace["message"], pa.array(ACKNOWLEDGEMENTS)))
    chosen = pc.and_(pc.equal(trace["event"], "send"), is_copy)
    if root is not None:
        chosen = pc.and_(chosen, pc.not_equal(trace["peer"], root))
    return trace.select(["time", "node", "peer", "message", "value"]).filter(chosen)


def queue_lengths(sends: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """``queue-length`` of each of the given copies; with it, the node. Only these copies count."""
    node = sends["node"].to_numpy().astype(np.int64)
    time = sends["time"].to_numpy()
    departure = time + sends["value"].to_numpy()
    # Node by node, each in the order of sending, which is the order of departure because the server is FIFO.
    order = np.argsort(node, kind="stable")
    node, time, departure = node[order], time[order], departure[order]
    horizon = int(departure.max(initial=0)) + 1
    left_before = np.searchsorted(node * horizon + departure, node * horizon + time, side="right")
    return node, np.arange(1, len(node) + 1) - left_before


def mean_per_node(node: np.ndarray, value: np.ndarray, node_count: int) -> np.ndarray:
    """The mean of the values at every node; 0 for nodes without values."""
    seen = np.bincount(node, minlength=node_count)
    total = np.bincount(node, weights=value, minlength=node_count)
    return np.divide(total, seen, out=np.zeros(node_count), where=seen > 0)


def in_classes(values: np.ndarray, borders: Sequence[float]) -> list[int]:
    """How many values are exactly 0, and how many in each class from one border (excluded) to the next (included)."""
    counts = [int(np.count_nonzero(values == 0))]
    for low, high in pairwise(borders):
        counts.append(int(np.count_nonzero((values > low) & (values <= high))))
    return counts


PUBLICATION_KINDS = ("Pub", "Ordered", "LeafCopy", "Bundle", "Packet", "Publication")
"""The classes of messages that carry publications to an assumed member."""


def publication_rows(trace: pa.Table, event: str) -> pa.Table:
    """The rows in which a copy of a publication is sent or received."""
    kinds = pa.array(PUBLICATION_KINDS)
    chosen = pc.and_(pc.equal(trace["event"], event), pc.is_in(trace["message"].cast(pa.string()), kinds))
    return trace.filter(chosen)


def hops(receptions: pa.Table, node_count: int) -> np.ndarray:
    """``hops`` of one publication to each node; 0 where it did not arrive.

    The publisher has 0 unless it receives its own publication, as from a single root; it forwards what comes back.
    """
    taken = np.zeros(node_count, np.int64)
    for node, peer in zip(receptions["node"].to_pylist(), receptions["peer"].to_pylist(), strict=True):
        taken[node] = taken[peer] + 1
    return taken


def delivery_delays(trace: pa.Table) -> np.ndarray:
    """``delivery-wait`` of each publication at each node.

    Everything that was received must have been delivered, and publications must travel alone, not in bundles.
    """
    received = publication_rows(trace, "receive")
    chosen = pc.and_(pc.equal(trace["event"], "deliver"), pc.not_equal(trace["node"], trace["source"]))
    delivered = trace.filter(chosen)
    if received.num_rows != delivered.num_rows:
        raise UsageError(
            f"{received.num_rows} publications were received and {delivered.num_rows} delivered; delays are defined "
            "only where the two are the same, so look at a run without churn, relays or bundles"
        )
    waits = by_publication(delivered)["time"].to_numpy() - by_publication(received)["time"].to_numpy()
    return np.asarray(waits)


def by_publication(rows: pa.Table) -> pa.Table:
    """Rows in the order of node, source and number."""
    names = ("node", "source", "sequence")
    return rows.select([*names, "time"]).sort_by([(name, "ascending") for name in names])


QUANTITIES = {"queue-length": queue_lengths, "hops": hops, "delivery-wait": delivery_delays}
"""The quantities that are measured here, by their names."""
