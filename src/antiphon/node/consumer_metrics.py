"""The figures of named consumers, as the node that leads the history of their topic knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from antiphon.streams.service.inquiries import consumers_of
from antiphon.streams.service.service import StreamService
from antiphon.trace.quantities import quantity

CONSUMERS_SHOWN: Final = 1000
"""Figures of so many consumers are shown."""

CONSUMER_METRICS: Final = {
    "lag": GaugeMetricFamily,
    "handed_out": GaugeMetricFamily,
    "members": GaugeMetricFamily,
    "redelivered": CounterMetricFamily,
    "missed": CounterMetricFamily,
}


def consumer_figures(service: StreamService | None) -> list[dict[str, Any]]:
    """The consumers of the topics whose histories this node leads."""
    if service is None:
        return []
    found: list[dict[str, Any]] = []
    for replica in service.replicas.values():
        if not replica.is_open or not replica.topic:
            continue
        for each in consumers_of(replica):
            if len(found) >= CONSUMERS_SHOWN:
                return found
            figures = {name: getattr(each, name) for name in CONSUMER_METRICS}
            found.append({"topic": replica.topic, "consumer": each.name, **figures})
    return found


def consumer_metrics(consumers: list[dict[str, Any]]) -> Iterator[Metric]:
    """The same for Prometheus."""
    for name, family in CONSUMER_METRICS.items():
        metric = family(
            f"antiphon_consumer_{name}", quantity(f"consumer_{name}").definition, labels=["topic", "consumer"]
        )
        for each in consumers:
            metric.add_metric([each["topic"], each["consumer"]], each[name])
        yield metric
