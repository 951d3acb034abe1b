"""Compiles the protocols and the simulator's engine where a C compiler exists; the rest is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))
from compiling import ParallelBuild, extensions

setup(ext_modules=extensions("antiphon"), cmdclass={"build_ext": ParallelBuild})
