"""What ``antiphon universe`` says of a universe, beside the same counted in memory; and the command as it is called."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from antiphon.cli.main import app_for
from antiphon.kernel.errors import UsageError
from antiphon_lab.report.universe_page import grey_png
from antiphon_lab.universes.fits import distribution_of
from antiphon_lab.universes.source import Source, read_names
from antiphon_lab.universes.statistics import grouped, statistics_of
from antiphon_lab.universes.universe import correlation_matrix, read_universe, synthetic_universe, write_universe


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app_for("universe"), ["universe", *map(str, arguments)])


def test_distributions_and_correlation_are_those_of_the_universe(spark: SparkSession, tmp_path: Path) -> None:
    universe = synthetic_universe("livejournal", 1500, seed=2, topics=60)
    assert universe.activity.min() == 0, "who subscribes to nothing is a row of zeros too"
    write_universe(universe, tmp_path / "u", "a test")
    found = statistics_of(read_names(spark, Source(str(tmp_path / "u"))), universe.processes, 100)
    assert (found.processes, found.topics, found.subscriptions) == (1500, 60, universe.subscriptions)
    for ours, amounts in ((found.popularity, universe.popularity), (found.activity, universe.activity)):
        expected = distribution_of(amounts)
        assert np.array_equal(ours.values, expected.values)
        assert np.array_equal(ours.counts, expected.counts)
    assert found.correlation is not None
    order = [int(name) for name in found.correlation.topics]
    assert sorted(order) == list(range(60))
    expected_matrix = correlation_matrix(universe)[np.ix_(order, order)]
    assert np.allclose(found.correlation.matrix, expected_matrix, atol=1e-6)


def test_similar_topics_are_put_side_by_side() -> None:
    """Three groups, mixed: in the order that is found no group is left before it is complete."""
    group = np.arange(60) % 3
    noise = np.random.default_rng(3).normal(0, 0.05, (60, 60))
    matrix = 0.1 + 0.4 * (group[:, None] == group) + (noise + noise.T) / 2
    np.fill_diagonal(matrix, 1.0)
    found = group[grouped(matrix)]
    assert np.count_nonzero(np.diff(found)) == 2


def test_a_heat_map_is_white_where_there_is_nothing_and_black_where_there_is_everything() -> None:
    picture = grey_png(np.array([[1.0, 0.0], [-0.5, 1.0]]))
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (600, 600)
    start = picture.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", picture[start - 8 : start - 4])
    lines = np.frombuffer(zlib.decompress(picture[start : start + length]), np.uint8).reshape(600, 601)[:, 1:]
    assert (lines[0, 0], lines[0, 599], lines[599, 0], lines[599, 599]) == (0, 255, 255, 0)


def test_generate_make_and_look(spark: SparkSession, tmp_path: Path) -> None:
    whole, small, page = tmp_path / "whole", tmp_path / "small", tmp_path / "page.html"
    done = call("generate", "wikipedia", whole, "--processes", 400, "--topics", 80, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["universe"]["topics"] == 80
    done = call("make", whole, small, "--seeds", 5, "--candidates", 3, "--members", "seeds", "--prune-by", "source")
    assert done.exit_code == 0, done.output
    assert "median of 3 candidates" in done.stdout
    assert 0 < read_universe(small).topics <= 80
    done = call("stats", small, "-o", page)
    assert done.exit_code == 0, done.output
    assert "correlation of" in done.stdout
    written = page.read_text()
    assert "data:image/png;base64," in written
    assert written.count("<svg") >= 4
    assert f"{read_universe(small).processes:,}" in written


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("make", "none.txt", "out"), "nothing at"),
        (("make", "raw.txt", "."), "there already"),
        (("make", "raw.txt", "out", "--seeds", 0), "at least one topic"),
        (("stats", "raw.txt", "-o", "page.pdf"), "ends in .html"),
        (("generate", "livejournal", "out", "--processes", 10, "--topics", 20), "owner"),
    ],
)
def test_misuse_is_told_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[object, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.txt").write_text("a b\n")
    monkeypatch.setattr("antiphon.pipeline.session.start_session", pytest.fail)
    monkeypatch.setattr("antiphon.pipeline.session.active_session", lambda: None)
    done = call(*arguments)
    assert isinstance(done.exception, UsageError)
    assert complaint in str(done.exception)
