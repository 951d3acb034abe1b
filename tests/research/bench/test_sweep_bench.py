"""The benchmark of sweeps: both sides do the same work."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

from antiphon.cli import main as command
from antiphon_lab.bench.sweep_bench import SweepMeasurement, measure_sweep
from antiphon_lab.cli import bench_spark


def test_spark_and_the_pool_write_the_same_bytes(spark: SparkSession) -> None:
    measured = {engine: measure_sweep(engine, 1, 2, 2) for engine in ("pool", "spark")}
    pool, on_spark = measured["pool"], measured["spark"]
    assert pool.processor_seconds is None or pool.processor_seconds > 0
    assert pool.fingerprint == on_spark.fingerprint
    assert pool.trace_rows == on_spark.trace_rows > 2 * 2 * 512
    assert measure_sweep("pool", 1, 2, 3).fingerprint != pool.fingerprint


def measurement(
    engine: str, cores: int, seconds: float, fingerprint: str = "same", others: float = 0.0
) -> SweepMeasurement:
    return SweepMeasurement(
        engine=engine,
        cores=cores,
        cells=4,
        start_seconds=1.0,
        seconds=seconds,
        processor_seconds=seconds * 2,
        others_seconds=others,
        seconds_per_cell=6.0,
        trace_rows=1000,
        trace_bytes=10,
        fingerprint=fingerprint,
    )


def test_of_several_rounds_the_fastest_counts() -> None:
    rounds = [measurement("pool", cores, seconds) for seconds in (21.0, 20.0, 25.0) for cores in (1, 2)]
    assert bench_spark.fastest(rounds, "pool", 2) == measurement("pool", 2, 20.0)


def test_what_is_spent_outside_of_cells_is_told_apart() -> None:
    assert measurement("spark", 1, 25.0).outside_seconds == 1.0, "4 cells of 6 s"
    assert measurement("spark", 2, 12.5).outside_seconds == 0.5


def test_a_disturbed_measurement_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    bench_spark.show([measurement("pool", 1, 20.0, others=1.0)], {})
    assert "busy" not in capsys.readouterr().out
    bench_spark.show([measurement("pool", 1, 20.0, others=3.0)], {})
    assert "The machine was busy with other work too" in capsys.readouterr().out


def call(monkeypatch: pytest.MonkeyPatch, spark_fingerprint: str = "same") -> int | str | None:
    def measure(engine: str, cores: int, cells: int, publications: int) -> SweepMeasurement:
        return measurement(
            engine, cores, 20.0 if engine == "pool" else 22.0, spark_fingerprint if engine == "spark" else "same"
        )

    monkeypatch.setattr(bench_spark, "measure_apart", measure)
    monkeypatch.setattr(sys, "argv", ["antiphon", "bench", "spark"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    return stopped.value.code


def test_the_table_says_what_spark_costs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch) == 0
    said = capsys.readouterr().out
    assert said.count("+10.0%") == 4, "elapsed and of the processor, with one core and with two"
    assert said.count("720") == 2, "4 cells in 20 s"


def test_a_side_that_did_something_else_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "another") == 1
    assert "did not write the same bytes" in capsys.readouterr().err
