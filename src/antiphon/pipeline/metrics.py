"""All metrics of traces: quantities (:mod:`antiphon.trace.quantities`) and the Spark jobs that measure them."""

from __future__ import annotations

# These two modules register their metrics.
import antiphon.pipeline.copy_metrics
import antiphon.pipeline.delivery_metrics  # noqa: F401
from antiphon.kernel.errors import UsageError
from antiphon.pipeline.measures import MEASURES, Metric
from antiphon.trace.quantities import (
    AUDIT,
    CLIENT,
    CONSUMER,
    DELIVERIES,
    DOOR,
    EVERYTHING,
    NODE,
    QUANTITIES,
    SOURCES,
    TOPIC,
    Quantity,
)

METRICS = {name: Metric(each, MEASURES[name]) for name, each in QUANTITIES.items() if name in MEASURES}


def metric_named(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise UsageError(f"there is no metric {name!r}; choose among {', '.join(METRICS)}")
    return METRICS[name]


SECTIONS = {
    "Traces": (
        (DELIVERIES, EVERYTHING),
        "`antiphon metrics TRACE` measures these in a trace, live or simulated. Times of a simulated run are in "
        "ticks; the scenario defines a tick. Times of live nodes are in milliseconds and seconds, and topics are shown "
        "by name. A value that an older trace does not record is null.",
    ),
    "Audits": ((AUDIT,), "`antiphon audit TRACE` counts these."),
    "Nodes": ((NODE,), "A running node reports these: `antiphon_...` at `/metrics`, and in `antiphon top`."),
    "Topics": (
        (TOPIC,),
        "A running node reports these for each topic: `antiphon_topic_...` at `/metrics`, and in `antiphon top`.",
    ),
    "Clients": (
        (CLIENT,),
        "A running node reports these for each client with quotas, by `client` and `quota`: `antiphon_client_...` at "
        "`/metrics`, and in `antiphon top`. At most 100 clients are shown, those that were at a quota most often.",
    ),
    "Consumers": (
        (CONSUMER,),
        "The node that leads the history of a topic reports these for each of its named consumers, by `topic` and "
        "`consumer`: `antiphon_consumer_...` at `/metrics`, and in `antiphon top`. At most 1,000 consumers are shown.",
    ),
    "MQTT": ((DOOR,), "A node that serves MQTT clients reports these: `antiphon_mqtt_...` at `/metrics`."),
}


def as_document() -> str:
    """The page about all quantities."""
    parts = [
        "# Metrics",
        "Every measured quantity, by name. This page is generated from the definitions in"
        "`src/antiphon/trace/quantities.py`; a test compares the two.",
    ]
    for title, (sources, text) in SECTIONS.items():
        parts += [f"## {title}", text]
        parts += [paragraph(each) for each in QUANTITIES.values() if each.source in sources]
    return "\n\n".join(parts) + "\n"


def paragraph(each: Quantity) -> str:
    """The paragraph of the page about one quantity."""
    needs = f" Needs {SOURCES[each.source]}." if each.source in (DELIVERIES, EVERYTHING) else ""
    return f"### {each.name}\n\nUnit: {each.unit}.{needs}\n\n{each.definition}"
