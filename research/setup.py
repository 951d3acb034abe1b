"""Compiles the laboratory's protocols if the product's sources are beside them; the rest is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup

REPOSITORY = Path(__file__).parent.parent

if (REPOSITORY / "compiling.py").exists():
    sys.path.insert(0, str(REPOSITORY))
    from compiling import ParallelBuild, extensions

    setup(ext_modules=extensions("antiphon_lab"), cmdclass={"build_ext": ParallelBuild})
else:
    setup()
