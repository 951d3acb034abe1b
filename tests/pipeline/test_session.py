"""The session: where it runs, in which interpreter, and what it says when it cannot run."""

from __future__ import annotations

import logging
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from antiphon.kernel.errors import PeerError, UsageError
from antiphon.pipeline import java
from antiphon.pipeline.session import (
    MASTER_VARIABLE,
    SessionOptions,
    addresses_of,
    chosen_memory,
    is_no_stack_of_py4j,
    spark_session,
    start_session,
)


def test_workers_run_the_same_interpreter_and_the_same_build(spark: SparkSession) -> None:
    import antiphon.kernel.process

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import antiphon.kernel.process

        for _ in batches:
            yield pa.record_batch([[sys.executable], [antiphon.kernel.process.__file__]], names=["python", "module"])

    (row,) = spark.range(1).mapInArrow(ask, "python string, module string").collect()
    assert (row.python, row.module) == (sys.executable, antiphon.kernel.process.__file__)


def test_an_embedded_session_listens_to_nobody_else_and_tries_again(spark: SparkSession) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.master"] == "local[2,4]"


def test_a_session_that_is_there_is_used_and_not_stopped(spark: SparkSession) -> None:
    with spark_session("another") as found:
        assert found is spark
    assert spark.range(3).count() == 3


def test_a_cluster_that_is_named_is_not_passed_over_for_a_session_that_is_there(spark: SparkSession) -> None:
    options = SessionOptions(master="spark://127.0.0.1:1")
    with pytest.raises(PeerError, match=r"no Spark master answers at 127\.0\.0\.1:1"), spark_session("test", options):
        pytest.fail("the session that is there was used")
    with socket.create_server(("127.0.0.1", 0)) as server:
        elsewhere = f"spark://127.0.0.1:{server.getsockname()[1]}"
        complaint = r"this process has a Spark session at local\[.*\] already; stop it, or leave out --master spark://"
        with pytest.raises(UsageError, match=complaint), spark_session("test", SessionOptions(master=elsewhere)):
            pytest.fail("the session that is there was used")


@pytest.mark.parametrize(
    ("options", "master"),
    [
        (SessionOptions(), "local[*,4]"),
        (SessionOptions(cores=1), "local[1,4]"),
        (SessionOptions(master="local[2]"), "local[2,4]"),
        (SessionOptions(master="local[2]", cores=1), "local[1,4]"),
        (SessionOptions(master="spark://host:7077", cores=8), "spark://host:7077"),
    ],
)
def test_where_the_work_is_done(monkeypatch: pytest.MonkeyPatch, options: SessionOptions, master: str) -> None:
    monkeypatch.delenv(MASTER_VARIABLE, raising=False)
    assert options.chosen_master() == master


def test_the_environment_can_name_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MASTER_VARIABLE, "sc://far:15002")
    assert SessionOptions().chosen_master() == "sc://far:15002"
    assert SessionOptions(master="yarn").chosen_master() == "yarn"


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("spark://one:7077,two:8077", [("one", 7077), ("two", 8077)]),
        ("sc://host/;user_id=me", [("host", 15002)]),
        ("k8s://https://host:6443", [("host", 6443)]),
        ("local[2,4]", []),
    ],
)
def test_where_a_master_listens(master: str, addresses: list[tuple[str, int]]) -> None:
    assert addresses_of(master) == addresses


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_is_not_there(scheme: str) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else can take the port, and nobody answers.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(PeerError, match=rf"no Spark master answers at 127\.0\.0\.1:{port}.*check --master"):
            start_session("test", SessionOptions(master=f"{scheme}://127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (SessionOptions(master="mesos://host"), "is no master of Spark; choose one of"),
        (SessionOptions(master="spark://"), "names no host"),
        (SessionOptions(master="spark://host:port"), "names no host and port"),
        (SessionOptions(cores=0), "expected a number of cores"),
        (SessionOptions(memory="lots"), "expected an amount of memory"),
    ],
)
def test_what_cannot_be_meant(options: SessionOptions, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        start_session("test", options)


def test_yarn_needs_to_know_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(UsageError, match="HADOOP_CONF_DIR"):
        start_session("test", SessionOptions(master="yarn"))


def test_memory_has_a_default_within_reason() -> None:
    assert 1024 <= int(chosen_memory(SessionOptions()).removesuffix("m")) <= 4096
    assert chosen_memory(SessionOptions(memory="2g")) == "2g"


# Java.


def fake_java(home: Path, version: str, modules: str = "java.base") -> Path:
    """A runtime that only says what it is and what it is asked to do."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"""#!/bin/sh
case "$1" in
    -version) echo 'openjdk version "{version}"' >&2 ;;
    --list-modules) echo "{modules}" ;;
    *) for argument do echo "$argument"; done ;;
esac
"""
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "find_spec", lambda _: None)


@pytest.mark.usefixtures("nothing_installed")
def test_no_java_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"Spark needs a Java runtime and this machine has none; .*antiphon\[java\]"):
        java.find_java_home()


@pytest.mark.usefixtures("nothing_installed")
def test_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(UsageError, match="is version 11, and Spark needs 17 or newer"):
        java.find_java_home()


@pytest.mark.usefixtures("nothing_installed")
def test_java_home_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="there is no bin/java; correct it or unset it"):
        java.find_java_home()


@pytest.mark.usefixtures("nothing_installed")
def test_the_machines_own_java_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "good", "17.0.15")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.defpath}")
    assert java.find_java_home() == home


def test_a_runtime_that_lacks_a_module_is_not_asked_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = fake_java(tmp_path / "a runtime", "25")
    stands_for = java.wrapped(home)
    assert stands_for != home
    said = subprocess.run(
        [stands_for / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", ""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split("\n") == ["-Xmx1g", "two words", "", ""]
    assert java.wrapped(home) == stands_for


def test_a_runtime_that_lacks_nothing_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = fake_java(tmp_path / "whole", "25", "java.base jdk.incubator.vector@25")
    assert java.wrapped(home) == home


def test_classes_are_archived_once_and_then_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def options() -> str:
        return java.archive_options(tmp_path / "java", tmp_path / "spark", "4.3.0")[0]

    first = options()
    assert first.startswith("-XX:ArchiveClassesAtExit=")
    partial = Path(first.partition("=")[2])
    partial.write_bytes(b"classes")
    assert options() == first, "it may still be being written"
    os.utime(partial, (0, 0))
    assert options().startswith("-XX:SharedArchiveFile=")
    assert not partial.exists()
    other = java.archive_options(tmp_path / "java", tmp_path / "spark", "4.3.1")[0]
    assert other.startswith("-XX:ArchiveClassesAtExit="), "another Spark has other classes"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_waits_until_spark_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Spark takes signals over when it starts; in the middle of a question to it they would end in its stack."""
    happened: list[str] = []

    class Session:
        def stop(self) -> None:
            signal.raise_signal(number)
            happened.append("stopped")

    def start(*_: object) -> Session:
        signal.signal(signal.SIGINT, lambda *_: happened.append("asked Java"))
        signal.raise_signal(signal.SIGTERM)
        happened.append("started")
        return Session()

    def work() -> None:
        with spark_session("test"):
            happened.append("not to be reached")

    monkeypatch.setattr("antiphon.pipeline.session.active_session", lambda: None)
    monkeypatch.setattr("antiphon.pipeline.session.start_session", start)
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert happened == ["started", "stopped"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_stacks_that_the_connection_to_java_logs_are_for_nobody() -> None:
    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "Exception while sending command.", (), None)

    assert not is_no_stack_of_py4j(record("/usr/lib/python3/site-packages/py4j/java_gateway.py"))
    assert is_no_stack_of_py4j(record("/home/anna/my_py4j/work.py"))
