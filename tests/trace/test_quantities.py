"""Every quantity is defined once; whoever measures one names it as it is defined."""

from __future__ import annotations

import pytest

from antiphon.audit import report
from antiphon.audit.findings import KINDS
from antiphon.cli import audit, top
from antiphon.kernel import UsageError
from antiphon.node import status
from antiphon.node.consumer_metrics import CONSUMER_METRICS
from antiphon.pipeline.measures import MEASURES
from antiphon.pipeline.metrics import METRICS
from antiphon.trace.quantities import (
    AUDIT,
    CLIENT,
    CONSUMER,
    DELIVERIES,
    EVERYTHING,
    NODE,
    QUANTITIES,
    SOURCES,
    TOPIC,
    quantity,
)
from antiphon_lab.reproduction import metrics as lab


def names_from(*sources: str) -> set[str]:
    return {each.name for each in QUANTITIES.values() if each.source in sources}


def test_every_quantity_says_where_it_is_read_and_what_it_means() -> None:
    for each in QUANTITIES.values():
        assert each.source in SOURCES
        assert each.unit
        assert each.definition[0].isupper() or each.definition[0].isdigit(), each.name
        assert len(each.definition.split()) > (10 if each.source in (DELIVERIES, EVERYTHING) else 1), each.name
    assert len({each.definition for each in QUANTITIES.values()}) == len(QUANTITIES)


def test_each_quantity_of_traces_is_measured_by_one_job() -> None:
    assert set(MEASURES) == set(METRICS) == names_from(DELIVERIES, EVERYTHING)


def test_a_running_node_says_what_is_defined() -> None:
    assert {name.replace("_", "-") for name in status.NODE_METRICS} | {"healthy"} == names_from(NODE)
    assert {name.replace("_", "-") for name in status.TOPIC_METRICS} == names_from(TOPIC)
    assert {name.replace("_", "-") for name in status.CLIENT_METRICS} == names_from(CLIENT)
    assert {f"consumer-{name.replace('_', '-')}" for name in CONSUMER_METRICS} == names_from(CONSUMER)


def test_the_live_view_shows_what_is_defined() -> None:
    for name in (*top.COUNTERS, *top.GAUGES):
        assert quantity(name).source == TOPIC
    for name in ("clients", "bytes_uncommitted", "bytes_unwritten"):
        assert name in top.NodeFigures.__struct_fields__
        assert quantity(name).source == NODE


def test_the_audit_counts_what_is_defined() -> None:
    checks = {f"violations-of-{name}" for name in (*report.CHECKS, *report.MORE_CHECKS, *report.CAMPAIGN_CHECKS)}
    assert checks | set(audit.COUNTS) == names_from(AUDIT)
    assert set(audit.COUNTS) <= set(report.Audit.__struct_fields__)
    assert set(KINDS) < set(report.CHECKS)


def test_experiments_measure_what_is_defined() -> None:
    assert set(lab.QUANTITIES) < names_from(EVERYTHING)
    for name, measured in lab.QUANTITIES.items():
        assert f"``{name}``" in str(measured.__doc__), "its docstring says which quantity it is, not what that means"


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no quantity 'speed'"):
        quantity("speed")
