"""The benchmark of services: what it measures is the service, on real nodes."""

from __future__ import annotations

import pytest

from antiphon.kernel.errors import UsageError
from antiphon_lab.bench.services.measure import measure


def test_callers_of_three_replicas_are_measured() -> None:
    (line,) = measure(["memory"], ["withdraw"], [3], calls=40, in_flight=8, fabric="cube")
    assert (line.system, line.job, line.keys, line.figures.calls) == ("memory", "withdraw", 3, 40)
    assert line.figures.calls_per_second == pytest.approx(40 / line.figures.seconds)
    assert 0 < line.figures.p50_ms <= line.figures.p99_ms


@pytest.mark.campaign
def test_postgresql_is_measured_in_the_same_way() -> None:
    pytest.importorskip("psycopg")
    lines = list(measure(["postgres", "postgres-3"], ["deposit"], [3], calls=40, in_flight=8, fabric="cube"))
    assert [line.system for line in lines] == ["postgres", "postgres-3"]


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no system 'oracle'"):
        list(measure(["oracle"], ["deposit"], [1], calls=1, in_flight=1, fabric="cube"))
