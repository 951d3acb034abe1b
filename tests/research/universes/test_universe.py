"""Universes on Spark: the method of section 3.3.1 of the thesis of M. Matos, beside the same in memory."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antiphon.kernel.errors import UsageError
from antiphon_lab.universes.files import PROCESSES, TOPICS, Candidate
from antiphon_lab.universes.jobs import WORK, claim, generate, make, removed_if_broken
from antiphon_lab.universes.law import LIVEJOURNAL
from antiphon_lab.universes.method import Enlarge, Members, Method, PruneBy
from antiphon_lab.universes.samples import UniverseSampler
from antiphon_lab.universes.source import Source, check_there, distinct_pairs, format_of, read_names
from antiphon_lab.universes.universe import Universe, read_universe, synthetic_universe, universe_of, write_universe


def quiet(_what: str) -> None:
    """Progress that nobody watches."""


def pairs_of(universe: Universe) -> set[tuple[int, int]]:
    process, topic = universe.pairs()
    return set(zip(process.tolist(), topic.tolist(), strict=True))


def names_in(spark: SparkSession, source: Source) -> list[tuple[str, str]]:
    rows = distinct_pairs(read_names(spark, source)).collect()
    return sorted((str(row["process"]), str(row["topic"])) for row in rows)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Universe, Path]:
    """A source in which everybody subscribes to something, so that numbers in it are those of the method."""
    universe = synthetic_universe("wikipedia", 500, seed=8, topics=250)
    assert universe.activity.min() > 0
    place = tmp_path_factory.mktemp("universe") / "whole"
    write_universe(universe, place, "a test")
    return universe, place


def test_a_job_draws_what_one_process_draws(spark: SparkSession, tmp_path: Path) -> None:
    law = LIVEJOURNAL.scaled(900, 60)
    about = generate(spark, law, 3, tmp_path / "u", quiet)
    found = read_universe(tmp_path / "u")
    alone = synthetic_universe("livejournal", 900, seed=3, topics=60)
    assert pairs_of(found) == pairs_of(alone)
    assert (about.processes, about.topics, about.subscriptions) == (900, 60, alone.subscriptions)


@pytest.mark.parametrize(
    ("enlarge", "members", "prune_by", "seeds", "candidates"),
    [
        ("random", "enlarged", "universe", 3, 4),
        ("random", "seeds", "universe", 12, 65),
        ("own", "seeds", "source", 4, 4),
    ],
)
def test_all_candidates_at_once_are_those_made_one_by_one(
    spark: SparkSession,
    tmp_path: Path,
    whole: tuple[Universe, Path],
    enlarge: Enlarge,
    members: Members,
    prune_by: PruneBy,
    seeds: int,
    candidates: int,
) -> None:
    """Masks of more candidates than one word holds, and every reading of the method."""
    method = Method(seeds, enlarge, members, prune_by, fewest_subscribers=30, candidates=candidates, seed=5)
    about = make(spark, Source(str(whole[1])), method, tmp_path / "u", quiet)
    sampler = UniverseSampler(whole[0])
    sample = sampler.median(method)
    assert about.candidates == sample.candidates
    assert about.parameters["chosen"] == sample.chosen
    expected = sampler.universe(sample)
    found = read_universe(tmp_path / "u")
    assert pairs_of(found) == pairs_of(expected)
    assert (found.processes, found.topics) == (expected.processes, expected.topics)
    assert 0 < found.topics < whole[0].topics
    assert found.activity.min() > 0


def test_topics_below_thirty_are_pruned_and_names_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """All topics are seeds, as in L1: what is left are the popular ones, and who subscribes to one."""
    lines = [f"user{number}\tbig" for number in range(40)] + [f"user{number}\tsmall" for number in range(35, 60)]
    source = tmp_path / "edges.txt"
    source.write_text("# a comment\n" + "\n".join(lines) + "\n")
    about = make(spark, Source(str(source)), Method(None), tmp_path / "u", quiet)
    assert (about.topics, about.processes, about.subscriptions) == (1, 40, 40)
    assert pq.read_table(tmp_path / "u" / TOPICS)["name"].to_pylist() == ["big"]
    processes = pq.read_table(tmp_path / "u" / PROCESSES)
    names = dict(zip(processes["process"].to_pylist(), processes["name"].to_pylist(), strict=True))
    assert sorted(names) == list(range(40))
    assert set(names.values()) == {f"user{number}" for number in range(40)}
    assert not (tmp_path / "u" / WORK).exists()


def test_nothing_left_says_what_to_do_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "edges.txt"
    source.write_text("a x\nb x\n")
    with pytest.raises(UsageError, match=r"--seeds.*--prune"), removed_if_broken(tmp_path / "u"):
        make(spark, Source(str(source)), Method(1, candidates=2), tmp_path / "u", quiet)
    assert not (tmp_path / "u").exists()
    with pytest.raises(UsageError, match="--enlarge random"):
        make(spark, Source(str(source)), Method(1, "own", candidates=2), tmp_path / "u", quiet)


@pytest.mark.parametrize("packed", [False, True])
def test_edge_lists_as_snap_publishes_them(spark: SparkSession, tmp_path: Path, packed: bool) -> None:
    text = "# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n0\t1\n0\t2\n\n7 2\n9\n"
    source = tmp_path / ("soc.txt.gz" if packed else "soc.txt")
    source.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert names_in(spark, Source(str(source))) == [("0", "1"), ("0", "2"), ("7", "2")]
    assert names_in(spark, Source(str(source), process="2", topic="1")) == [("1", "0"), ("2", "0"), ("2", "7")]


def test_lists_of_communities(spark: SparkSession, tmp_path: Path) -> None:
    """Every line is a topic of its own, also if another has the same members."""
    (tmp_path / "com-lj.all.cmty.txt").write_text("1\t2\t3\n4 5\n4 5\n")
    found = names_in(spark, Source(str(tmp_path / "com-lj.all.cmty.txt")))
    topics = {topic: {process for process, its in found if its == topic} for _, topic in found}
    assert sorted(map(sorted, topics.values())) == [["1", "2", "3"], ["4", "5"], ["4", "5"]]


def test_tables_of_revisions(spark: SparkSession, tmp_path: Path) -> None:
    """Page and user of every revision; who is not registered has no name, and edits of one page count once."""
    source = tmp_path / "revisions.csv.gz"
    text = 'page,user,bytes\n"Rome, City",ann,3\n"Rome, City",ann,9\nOslo,,2\nOslo, bob ,500\n'
    source.write_bytes(gzip.compress(text.encode()))
    assert names_in(spark, Source(str(source))) == [("ann", "Rome, City"), ("bob", "Oslo")]
    assert names_in(spark, Source(str(source), where="bytes > 100")) == [("bob", "Oslo")]


def test_parquet_with_columns_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"Who": [1, 2, 2], "what": [5, 5, 6]}), tmp_path / "raw.parquet")
    source = Source(str(tmp_path / "raw.parquet"), process="who", topic="what")
    assert names_in(spark, source) == [("1", "5"), ("2", "5"), ("2", "6")]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ({"process": "nobody"}, "no column 'nobody'; its columns are page, user, bytes: name one with --process"),
        ({"process": "page", "topic": "page"}, "cannot hold both"),
        ({"where": "colour = 1"}, "the condition"),
    ],
)
def test_wrong_columns_are_named(spark: SparkSession, tmp_path: Path, source: dict[str, str], complaint: str) -> None:
    place = tmp_path / "revisions.csv"
    place.write_text("page,user,bytes\nOslo,bob,1\n")
    with pytest.raises(UsageError, match=complaint):
        read_names(spark, Source(str(place), **source))  # type: ignore[arg-type]


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing at"):
        check_there(Source(str(tmp_path / "none.txt")))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UsageError, match="is empty"):
        check_there(Source(str(tmp_path / "empty.txt")))
    (tmp_path / "raw.dat").write_text("a b\n")
    with pytest.raises(UsageError, match="--format"):
        format_of(Source(str(tmp_path / "raw.dat")))


def test_a_source_of_comments_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "comments.txt").write_text("# nothing\n")
    with pytest.raises(UsageError, match="no row"):
        make(spark, Source(str(tmp_path / "comments.txt")), Method(None), tmp_path / "u", quiet)


def test_output_is_not_written_over_something(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("important")
    with pytest.raises(UsageError, match="there already"):
        claim(tmp_path)
    claim(tmp_path / "new")
    assert (tmp_path / "new").is_dir()


def test_the_median_of_many_is_like_the_whole(whole: tuple[Universe, Path]) -> None:
    """Section 3.3.1: half of the candidates have fewer topics per process than the one that is kept."""
    sample = UniverseSampler(whole[0]).median(Method(10, members="seeds", prune_by="source", candidates=21))
    ratios = sorted(one.ratio for one in sample.candidates)
    assert sample.candidates[sample.chosen].ratio == ratios[10]


def test_a_universe_of_all_topics_has_one_candidate() -> None:
    universe = universe_of(np.arange(60), np.arange(60) % 2)
    sample = UniverseSampler(universe).median(Method(None, fewest_subscribers=30))
    assert sample.candidates == [Candidate(topics=2, processes=60)]
    with pytest.raises(UsageError, match="lower --seeds"):
        UniverseSampler(universe).median(Method(5))
