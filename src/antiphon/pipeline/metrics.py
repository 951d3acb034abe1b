"""All metrics of traces: quantities (:mod:`antiphon.trace.quantities`) and the Spark jobs that measure them."""

from __future__ import annotations

# These two register what they measure.
import antiphon.pipeline.copy_metrics
import antiphon.pipeline.delivery_metrics  # noqa: F401
from antiphon.kernel.errors import UsageError
from antiphon.pipeline.measures import MEASURES, Metric
from antiphon.trace.quantities import AUDIT, DELIVERIES, EVERYTHING, NODE, QUANTITIES, SOURCES, TOPIC, Quantity

METRICS = {name: Metric(each, MEASURES[name]) for name, each in QUANTITIES.items() if name in MEASURES}


def metric_named(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise UsageError(f"there is no metric {name!r}; choose among {', '.join(METRICS)}")
    return METRICS[name]


SECTIONS = {
    "Traces": (
        (DELIVERIES, EVERYTHING),
        "What `antiphon metrics TRACE` measures in a trace, live or simulated. Times are in ticks of the clock of a "
        "simulated run, which mean what the scenario means by them; of live nodes they are shown in milliseconds and "
        "seconds, and topics by their names. What a trace of an older version does not say is null.",
    ),
    "Audits": ((AUDIT,), "What `antiphon audit TRACE` counts."),
    "Nodes": ((NODE,), "What a running node says of itself: `antiphon_...` at `/metrics`, and in `antiphon top`."),
    "Topics": (
        (TOPIC,),
        "The same of a topic at a node: `antiphon_topic_...` at `/metrics`, and in `antiphon top`.",
    ),
}


def as_document() -> str:
    """The page about all quantities."""
    parts = [
        "# Metrics",
        "Everything that is measured, by name. This page is made of the definitions in "
        "`src/antiphon/trace/quantities.py`; a test compares the two.",
    ]
    for title, (sources, text) in SECTIONS.items():
        parts += [f"## {title}", text]
        parts += [paragraph(each) for each in QUANTITIES.values() if each.source in sources]
    return "\n\n".join(parts) + "\n"


def paragraph(each: Quantity) -> str:
    """What the page says about one."""
    needs = f" Needs {SOURCES[each.source]}." if each.source in (DELIVERIES, EVERYTHING) else ""
    return f"### {each.name}\n\nUnit: {each.unit}.{needs}\n\n{each.definition}"
