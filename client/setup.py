"""Takes the packages that a client imports from the sources of the product; a test compares the two.

The distribution `antiphon` has the same files, so an environment has one of the two.
"""

import ast
import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

SOURCES = Path(__file__).resolve().parent.parent / "src"
PARTS = (
    *("api", "client", "fabrics", "kernel", "membership", "orders", "runtime", "services", "sessions", "spaces"),
    *("streams", "transport"),
)


def version() -> str:
    """The version of the product."""
    (found,) = re.findall(r'^__version__ = (".*")$', (SOURCES / "antiphon" / "__init__.py").read_text(), re.MULTILINE)
    return str(ast.literal_eval(found))


setup(
    version=version(),
    packages=find_namespace_packages(
        str(SOURCES),
        include=["antiphon", *(f"antiphon.{part}" for part in PARTS), *(f"antiphon.{part}.*" for part in PARTS)],
    ),
    package_dir={"": "../src"},
    package_data={"antiphon": ["py.typed"]},
    options={"egg_info": {"egg_base": "."}, "bdist_wheel": {"dist_dir": "dist"}},
)
