"""The versions that were tested, and the list of packages with their licences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from antiphon.cli.maintenance.dependencies import cyclonedx, installed

ROOT = Path(__file__).parent.parent
LINE = re.compile(r"([a-z0-9.-]+)==([0-9][0-9a-z.+-]*)")


def constraints() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), "each line is a name and an exact version: no address, no path, no range"
    return {canonicalize_name(match[1]): match[2] for match in found if match is not None}


def test_every_dependency_has_an_exact_version_within_its_range() -> None:
    exact = constraints()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    laboratory = tomllib.loads((ROOT / "research" / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *laboratory["project"]["dependencies"]]
    for extra in (*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()):
        needed += extra
    for requirement in map(Requirement, needed):
        name = canonicalize_name(requirement.name)
        if name != "antiphon":
            assert requirement.specifier.contains(exact[name]), requirement


def test_the_commands_install_these_versions() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "pip = $(INSTALL) $(CONSTRAINTS) $(1) || {" in makefile
    assert len(re.findall(r"^\t\$\(INSTALL\)", makefile, re.MULTILINE)) == 1, "only `make constraints` takes others"


def test_what_is_installed_is_listed() -> None:
    """Its versions may be others in the ranges, where an index does not have all that were tested."""
    exact = constraints()
    assert [name for name in installed() if not name.startswith("antiphon") and name not in exact] == []


def test_all_packages_are_listed_with_their_licences() -> None:
    command = [sys.executable, "-m", "antiphon", "dependencies", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(done.stdout)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["name"] == "antiphon"
    components = {each["name"]: each for each in found["components"]}
    assert {"msgspec", "cryptography", "uvloop", "pyspark", "py4j", "cffi"} <= set(components), "and what these need"
    assert components["msgspec"]["purl"] == f"pkg:pypi/msgspec@{version('msgspec')}"
    assert components["numpy"]["licenses"][0]["expression"].startswith("BSD-3-Clause")
    assert [name for name, each in components.items() if "licenses" not in each and name != "antiphon-lab"] == []
    assert "pytest" not in components, "a tool for development is not part of the product"
    references = {each["bom-ref"] for each in [*found["components"], found["metadata"]["component"]]}
    assert len(references) == len(found["components"]) + 1
    assert {each["ref"] for each in found["dependencies"]} == references
    assert all(set(each["dependsOn"]) <= references for each in found["dependencies"])


def test_the_same_packages_have_the_same_serial_number() -> None:
    packages = installed()
    assert cyclonedx(packages)["serialNumber"] == cyclonedx(packages)["serialNumber"]
    fewer = {name: package for name, package in packages.items() if name != "rich"}
    assert cyclonedx(fewer)["serialNumber"] != cyclonedx(packages)["serialNumber"]
