"""The one place where a Spark session is made.

By default Spark is embedded: it runs inside this command, on all cores, without a network. A master (``--master`` or
the environment variable ``ANTIPHON_SPARK_MASTER``) sends the same jobs to a cluster: ``spark://``, ``yarn``,
``k8s://``, or a Spark Connect server at ``sc://``. A command makes one session and keeps it to its end.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from antiphon.audit.spark.scratch import scratch_directory
from antiphon.kernel.errors import PeerError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "ANTIPHON_SPARK_MASTER"
MEMORY_VARIABLE = "ANTIPHON_SPARK_MEMORY"

ATTEMPTS = 4
"""The number of attempts at a task before the job fails; by default an embedded Spark would try once."""

SECONDS_TO_CONNECT = 5.0
SMALLEST_MEMORY = 1 << 30
LARGEST_MEMORY = 4 << 30
MEMORY = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)
KINDS_OF_MASTERS = "local[2], spark://host:7077, yarn, k8s://https://host:6443 or sc://host:15002"
DEFAULT_PORTS = {"spark": 7077, "sc": 15002, "k8s": 443}
LINES_OF_LOG = 400


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a session."""

    master: str | None = None
    """The master; by default embedded."""
    cores: int | None = None
    """The number of cores of an embedded Spark, or of the job on a cluster; by default all."""
    memory: str | None = None
    """The memory of the driver, such as ``2g``; it includes the executor of an embedded Spark."""
    brief: bool = False
    """For work of seconds: compile less, start sooner."""
    settings: Mapping[str, str] = {}
    """Further settings of Spark."""

    def chosen_master(self) -> str:
        """The master, from the option or the environment; embedded by default."""
        named = self.master or os.environ.get(MASTER_VARIABLE, "")
        if not named or named == "local":
            cores = "*" if self.cores is None else str(self.cores)
            return f"local[{cores},{ATTEMPTS}]"
        plain = re.fullmatch(r"local\[(\d+|\*)\]", named)
        if plain is not None:
            return f"local[{plain[1] if self.cores is None else self.cores},{ATTEMPTS}]"
        return named


def is_local(master: str) -> bool:
    """Whether Spark is embedded in this process."""
    return master.startswith("local")


def local_cores(master: str) -> int:
    """The number of parallel tasks of an embedded Spark."""
    match = re.match(r"local\[(\d+)", master)
    return int(match[1]) if match is not None else len(os.sched_getaffinity(0))


@contextmanager
def spark_session(application: str, options: SessionOptions | None = None) -> Iterator[SparkSession]:
    """A session for the length of a block; an existing one, as in a notebook, is used and not stopped."""
    present = active_session()
    if present is not None:
        if options is not None and options.master is not None:
            check_present(present, options.master)
        yield present
        return
    session = None
    try:
        with interrupts_deferred():
            session = start_session(application, options or SessionOptions())
        yield session
    finally:
        if session is not None:
            # A signal that stops the command may have stopped its Java process at the same moment; then it does not
            # answer.
            with interrupts_deferred(), suppress(Exception):
                session.stop()


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer a request to stop (Ctrl-C, SIGTERM) to the end of a block.

    In the middle of a call to Java it would end in a stack trace. Spark installs its own handler of Ctrl-C as soon as
    it runs, which calls Java again; this block restores ours.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: asked.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    for asked_for in asked[:1]:
        signal.raise_signal(asked_for)


def is_no_stack_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record is for people: the connection to Java also logs the stack of each error that it raises."""
    return "py4j" not in Path(record.pathname).parts


def active_session() -> SparkSession | None:
    """The session of this process, if any; does not load Spark to find out."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def start_session(application: str, options: SessionOptions) -> SparkSession:
    """Start a session; any failure becomes one sentence. The caller stops the session."""
    master = options.chosen_master()
    check_options(options, master)
    pyspark = import_pyspark()
    check_master(master)
    if master.startswith("sc://"):
        return connect(application, master, options)
    from pyspark.sql import SparkSession

    scratch = scratch_directory()
    settings = settings_for(master, options, scratch, str(pyspark.__version__), Path(str(pyspark.__file__)).parent)
    prepare_environment(master)
    builder = SparkSession.builder.appName(application).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    log = scratch / "spark.log"
    logging.getLogger().addFilter(is_no_stack_of_py4j)
    try:
        with standard_error_into(log):
            session = builder.getOrCreate()
    except Exception as error:
        # Py4J passes on any exception of Java.
        raise PeerError(f"Spark does not start at {master}: {reason(error, log)}") from error
    session.sparkContext.setLogLevel("OFF" if is_local(master) else "ERROR")
    return session


def check_present(session: SparkSession, master: str) -> None:
    """Refuse a cluster that does not answer, or that differs from the existing session's."""
    if is_local(master):
        return
    check_master(master)
    here = session.conf.get("spark.master", None)
    if here != master:
        raise UsageError(f"this process has a Spark session at {here} already; stop it, or leave out --master {master}")


def import_pyspark() -> ModuleType:
    """The module, or a sentence about what to install."""
    try:
        import pyspark
    except ImportError as error:
        raise UsageError("this needs Apache Spark; run: pip install 'antiphon[spark]'") from error
    return pyspark


def check_options(options: SessionOptions, master: str) -> None:
    """Refuse invalid options."""
    if options.cores is not None and options.cores < 1:
        raise UsageError(f"expected a number of cores, 1 or more, not {options.cores}; for example: --cores 2")
    memory = chosen_memory(options)
    if MEMORY.fullmatch(memory) is None:
        raise UsageError(f"expected an amount of memory such as 2g or 800m, not {memory!r}")
    scheme = master.partition(":")[0]
    if not (is_local(master) or master == "yarn" or scheme in DEFAULT_PORTS):
        raise UsageError(f"{master!r} is no master of Spark; choose one of {KINDS_OF_MASTERS}, or none to run here")


def check_master(master: str) -> None:
    """Check in a few seconds that a master answers, instead of after Spark's minutes."""
    if master == "yarn":
        if not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
            raise UsageError("master yarn needs HADOOP_CONF_DIR to name the directory of the cluster's configuration")
        return
    failures = []
    for host, port in addresses_of(master):
        try:
            socket.create_connection((host, port), SECONDS_TO_CONNECT).close()
            return
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
    if failures:
        raise PeerError(f"no Spark master answers at {', '.join(failures)}; check --master, and that it runs")


def addresses_of(master: str) -> list[tuple[str, int]]:
    """The addresses of a master; a standalone one may have several. None if Spark is embedded."""
    if is_local(master):
        return []
    scheme, _, rest = master.partition("://")
    text = rest.partition("/;")[0]
    if scheme == "k8s":
        text = text.rpartition("://")[2]
    found = []
    for part in text.split(","):
        try:
            place = urlsplit(f"//{part}")
            host, port = place.hostname, place.port
        except ValueError as error:
            raise UsageError(f"{master!r} names no host and port; for example: {KINDS_OF_MASTERS}") from error
        if not host:
            raise UsageError(f"{master!r} names no host; for example: {KINDS_OF_MASTERS}")
        found.append((host, port or DEFAULT_PORTS[scheme]))
    return found


def connect(application: str, master: str, options: SessionOptions) -> SparkSession:
    """A session on a Spark Connect server; needs no Java here."""
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.appName(application).remote(master)
        for name, value in {**QUERY_SETTINGS, **options.settings}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError as error:
        raise UsageError("Spark Connect needs more packages; run: pip install 'antiphon[spark]'") from error
    except Exception as error:
        raise PeerError(f"no Spark Connect server answers at {master}: {first_line(str(error))}") from error


QUERY_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A trace is one file: it is read in pieces small enough that no core is idle at the end.
    "spark.sql.files.maxPartitionBytes": "16m",
    # Six times Spark's default: fewer batches to pack and unpack, and still a few megabytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""The settings that all our queries expect, wherever they run."""


def settings_for(master: str, options: SessionOptions, scratch: Path, version: str, spark_home: Path) -> dict[str, str]:
    """The settings of a session; those of the command override the defaults."""
    from antiphon.pipeline.java import archive_options, find_java_home

    java_home = find_java_home()
    os.environ["JAVA_HOME"] = str(java_home)
    java_options = [f"-Djava.io.tmpdir={scratch}", *archive_options(java_home, spark_home, version)]
    # Spark compiles a whole stage into one method; above 8000 bytes Java would interpret it row by row.
    java_options.append("-XX:-DontCompileHugeMethods")
    if options.brief:
        java_options.append("-XX:TieredStopAtLevel=1")
    found = {
        **QUERY_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.memory": chosen_memory(options),
        "spark.task.maxFailures": str(ATTEMPTS),
    }
    if is_local(master):
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
            "spark.python.daemon.module": "antiphon.pipeline.worker_daemon",
            # There is no network in between; only after a sleep of the machine would the executor seem silent for long.
            "spark.network.timeout": "30d",
            # Two per core keep both busy; Spark's 200 are for clusters.
            "spark.sql.shuffle.partitions": str(2 * local_cores(master)),
        }
    elif options.cores is not None:
        found["spark.cores.max"] = str(options.cores)
    found |= options.settings
    more = found.get("spark.driver.extraJavaOptions", "")
    found["spark.driver.extraJavaOptions"] = " ".join([*java_options, more]).strip()
    return found


def prepare_environment(master: str) -> None:
    """Let workers use the interpreter of this process, which has the compiled simulator."""
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        # Other machines may have it in another place, which the operator has configured then.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Another Spark on the machine, or one of another version, must not be mixed with the installed package.
    os.environ.pop("SPARK_HOME", None)


def chosen_memory(options: SessionOptions) -> str:
    """The memory of the driver: as requested, or a quarter of the machine's within bounds."""
    asked = options.memory or os.environ.get(MEMORY_VARIABLE)
    if asked:
        return asked
    wanted = min(max(machine_memory() // 4, SMALLEST_MEMORY), LARGEST_MEMORY)
    return f"{wanted >> 20}m"


def machine_memory() -> int:
    """The most bytes that this process may use: the machine's memory, or the limit of its container."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        return min(whole, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return whole


@contextmanager
def standard_error_into(log: Path) -> Iterator[None]:
    """Redirect the standard error of processes started in the block to a file, because Java writes much of no use."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def reason(error: BaseException, log: Path) -> str:
    """Why Spark did not start: the output of Java if it did not get far, else the exception."""
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES_OF_LOG:] if log.is_file() else []
    for line in said:
        if line.startswith(("Error", "Exception in thread", "Caused by:")):
            return line
    return first_line(str(error))


def first_line(text: str) -> str:
    """The first line of a message that may be pages long, without the remark that Py4J called Java."""
    first, _, rest = text.strip().partition("\n")
    if first.startswith("An error occurred while calling") and rest:
        return first_line(rest.lstrip(": "))
    return first
