"""``antiphon dependencies``: the installed packages that Antiphon uses, with their licences, also as CycloneDX.

The JSON follows CycloneDX 1.6. It is written here and not with a library, because it is one table of what
``importlib.metadata`` knows, and a library for it would bring eight packages of its own into every installation.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Annotated, Any, Final, NamedTuple

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.markup import escape
from rich.table import Table

from antiphon.cli import output

ROOTS: Final = ("antiphon", "antiphon-lab")
EXTRAS: Final = ("spark", "java")
OSI: Final = "License :: OSI Approved :: "
LICENCE_CHARACTERS: Final = 80
"""A longer text is the licence itself and not its name."""

KNOWN: Final = {
    "MIT License": "MIT",
    "MIT": "MIT",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names of licences in older packages that mean one identifier of SPDX."""


class Package(NamedTuple):
    """One installed package."""

    name: str
    version: str
    licence: str
    is_expression: bool
    """Whether the licence is written with identifiers of SPDX."""
    needs: tuple[str, ...]

    @property
    def reference(self) -> str:
        """Its address in the form that lists of packages use."""
        return f"pkg:pypi/{self.name}@{self.version}"


def dependencies(
    json: Annotated[bool, typer.Option("--json", help="Print a CycloneDX 1.6 document.")] = False,
) -> None:
    """List the installed packages that Antiphon uses, with versions and licences.

    Example: antiphon dependencies --json > packages.cdx.json
    """
    packages = installed()
    if json:
        output.print_json(cyclonedx(packages))
        return
    table = Table("package", "version", "licence", box=None)
    for package in packages.values():
        table.add_row(escape(package.name), package.version, escape(package.licence or "not stated"))
    output.console.print(table)


def installed() -> dict[str, Package]:
    """Antiphon and every installed package that it needs, by name."""
    found: dict[str, Package] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset(EXTRAS)) for name in ROOTS]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed, or another platform
        needed = [(canonicalize_name(each.name), frozenset(each.extras)) for each in requirements(package, extras)]
        waiting += needed
        before = found[name].needs if name in found else ()
        licence, is_expression = licence_of(package)
        needs = tuple(sorted({*before, *(each for each, _ in needed)}))
        found[name] = Package(name, package.version, licence, is_expression, needs)
    return dict(sorted(found.items()))


def requirements(package: Distribution, extras: frozenset[str]) -> list[Requirement]:
    """The requirements of a package that count on this machine."""
    parsed = [Requirement(each) for each in package.requires or ()]
    return [
        each
        for each in parsed
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def licence_of(package: Distribution) -> tuple[str, bool]:
    """The licence of a package, and whether it is an expression of SPDX; empty if the package does not say."""
    metadata = package.metadata
    expression = metadata.json.get("license_expression")
    if expression:
        return str(expression), True
    named = [each.removeprefix(OSI) for each in metadata.get_all("Classifier") or () if each.startswith(OSI)]
    stated = named or [str(metadata.json.get("license", "")).strip()]
    if all(each in KNOWN for each in stated):
        return " OR ".join(KNOWN[each] for each in stated), True
    text = " or ".join(stated)
    return ("" if len(text) > LICENCE_CHARACTERS or "\n" in text else text), False


def cyclonedx(packages: dict[str, Package]) -> dict[str, Any]:
    """The document; the same packages have the same serial number."""
    lines = "\n".join(package.reference for package in packages.values())
    root = packages["antiphon"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, lines)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "tools": {
                "components": [{"type": "application", "name": "antiphon dependencies", "version": root.version}]
            },
            "component": component(root, "application"),
        },
        "components": [component(package, "library") for package in packages.values() if package is not root],
        "dependencies": [
            {
                "ref": package.reference,
                "dependsOn": [packages[name].reference for name in package.needs if name in packages],
            }
            for package in packages.values()
        ],
    }


def component(package: Package, kind: str) -> dict[str, Any]:
    """A package as a component of the document."""
    about: dict[str, Any] = {
        "type": kind,
        "bom-ref": package.reference,
        "name": package.name,
        "version": package.version,
        "purl": package.reference,
    }
    if package.is_expression:
        about["licenses"] = [{"expression": package.licence}]
    elif package.licence:
        about["licenses"] = [{"license": {"name": package.licence}}]
    return about
