"""One measurement of an experiment on disk: how it is run, and how a finished one is recognised.

A measurement is one case with one seed. Its record is a JSON file that people can find and read::

    measurements/experiments.vcube.one_publisher.measure/VCube-PS-8-nodes-25-members-1a2b3c4d/7250211945.json

The record has the measured value, the time it took, and the digest of everything that decides the value: the case, the
seed, and the source of the measuring function and of all modules of Antiphon that it imports, directly or not; the
modules with which experiments are declared and compared have no part in it. A record with another digest belongs to
another measurement, which is then run again. Experiments that measure the same case the same way share its records.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import msgspec
import numpy as np

import antiphon
import antiphon_lab
from antiphon.kernel.errors import UsageError
from antiphon.pipeline.atomic_output import attempt_in

MEASUREMENTS = "measurements"
RECORD = "record.json"
LONGEST_NAME = 80
PACKAGES = {module.__name__: Path(module.__path__[0]) for module in (antiphon, antiphon_lab)}
FRAME = tuple(Path(__file__).with_name(f"{name}.py") for name in ("documents", "experiment", "figures", "verdicts"))
"""Modules that define how measurements are repeated, compared and reported, not what is measured; their imports do not
count either.
"""

Measure = Callable[[Any, int], Any]


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One case, measured with one seed."""

    number: int
    measure: Measure
    case: Any
    seed: int
    file: str
    """Where its record is, below the output directory."""
    digest: str
    """Changes whenever the value could."""
    work: int
    """An estimate in microseconds."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a measurement."""

    digest: str
    measure: str
    case: str
    """For people."""
    parameters: str
    """All of the case."""
    seed: int
    seconds: float
    processor_seconds: float
    """More reliable than elapsed time on a shared machine."""
    value: Any


def identity_of(measure: Measure, case: object, seed: int) -> tuple[str, str, int]:
    """Measurements with the same identity are one and the same."""
    return f"{measure.__module__}.{measure.__qualname__}", repr(case), seed


def measurement_of(number: int, measure: Measure, case: object, seed: int, work: int) -> Measurement:
    """A measurement, with its place on disk and the digest that changes with it."""
    name, parameters, _ = identity_of(measure, case, seed)
    about_case = re.sub(r"[^A-Za-z0-9.]+", "-", str(case)).strip("-")[:LONGEST_NAME]
    # Texts of cases are for people: two cases may have the same.
    exact = hashlib.sha256(parameters.encode()).hexdigest()[:8]
    described = json.dumps([code_digest(source_of(measure)), name, parameters, seed])
    return Measurement(
        number=number,
        measure=measure,
        case=case,
        seed=seed,
        file=f"{MEASUREMENTS}/{name.removeprefix('antiphon_lab.')}/{about_case}-{exact}/{seed}.json",
        digest=hashlib.sha256(described.encode()).hexdigest(),
        work=work,
    )


def source_of(measure: Measure) -> Path:
    """The file of a measuring function."""
    return Path(inspect.getfile(measure))


@cache
def code_digest(source: Path) -> str:
    """Changes whenever a module, or one of Antiphon that it imports, does."""
    digest = hashlib.sha256(antiphon.__version__.encode())
    for path in sorted(imported_from(source)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def imported_from(source: Path) -> set[Path]:
    """A module and all modules of Antiphon that it imports, directly or not, but for the frame of experiments."""
    found = {source}
    waiting = [source]
    while waiting:
        new = set(direct_imports(waiting.pop())) - found - set(FRAME)
        found |= new
        waiting += new
    return found


@cache
def direct_imports(source: Path) -> list[Path]:
    """The modules of Antiphon that a module names in its imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            # A name imported from a package may be one of its modules.
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [path for name in names for path in files_of(name)]


def files_of(module: str) -> Iterator[Path]:
    """The source of a module of Antiphon; nothing for other modules, and for names that are no modules."""
    first, *steps = module.split(".")
    if first in PACKAGES and steps:
        place = PACKAGES[first].joinpath(*steps)
        yield from (path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.is_file())


@cache
def value_type(measure: Measure) -> Any:
    """The declared result type of a measuring function."""
    try:
        return get_type_hints(measure)["return"]
    except KeyError as error:
        raise UsageError(
            f"{measure.__module__}.{measure.__qualname__} has no result type; annotate its result"
        ) from error


def read_measured(measurement: Measurement, out: Path) -> Measured | None:
    """The record of a finished measurement; none if it must be run."""
    try:
        return decode((out / measurement.file).read_bytes(), measurement)
    except (OSError, msgspec.DecodeError):
        # Running it again repairs any damage, or reports why it cannot.
        return None


def decode(written: bytes, measurement: Measurement) -> Measured | None:
    """A record with its value as the measuring function returned it; none if it is that of another measurement."""
    record = msgspec.json.decode(written, type=Measured)
    if record.digest != measurement.digest:
        return None
    value = msgspec.convert(record.value, value_type(measurement.measure), dec_hook=array_from)
    return msgspec.structs.replace(record, value=value)


def run_measurement(measurement: Measurement, out: Path) -> Measured:
    """Run a measurement and put its record into place; a finished one is left alone."""
    found = read_measured(measurement, out)
    if found is not None:
        return found
    with attempt_in(out, measurement.number) as attempt:
        written = msgspec.json.encode(measured(measurement), enc_hook=array_to)
        # A value that cannot be read back must not look finished: one that is not a number, for example.
        record = decode(written, measurement)
        assert record is not None, "the digest was written a moment ago"
        (attempt / RECORD).write_bytes(written)
        place = out / measurement.file
        place.parent.mkdir(parents=True, exist_ok=True)
        (attempt / RECORD).replace(place)
    return record


def measured(measurement: Measurement) -> Measured:
    """Measure, and record the cost."""
    name, parameters, seed = identity_of(measurement.measure, measurement.case, measurement.seed)
    begun, used = time.perf_counter(), time.process_time()
    value = measurement.measure(measurement.case, measurement.seed)
    return Measured(
        digest=measurement.digest,
        measure=name,
        case=str(measurement.case),
        parameters=parameters,
        seed=seed,
        seconds=time.perf_counter() - begun,
        processor_seconds=time.process_time() - used,
        value=value,
    )


def array_to(value: object) -> object:
    """Arrays and numbers of numpy in plain terms."""
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "values": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a measurement cannot be written down if it holds a {type(value).__name__}")


def array_from(kind: type, value: Any) -> object:
    """The array that was written."""
    # The type may give the element type of the array.
    if (get_origin(kind) or kind) is not np.ndarray:
        raise TypeError(f"a measurement cannot be read back if it holds a {kind.__name__}")
    return np.array(value["values"], dtype=value["dtype"])
