"""The laboratory of Antiphon: published protocols, experiments, benchmarks and reports, in a distribution of its own.

- ``protocols``: published protocols and rivals that no live node runs.
- ``scenarios``: how scenarios name them.
- ``experiments``: one folder per system; each module repeats figures and tables of one document.
- ``reproduction``: the frame of all experiments: cases, repetitions, comparison with what was published.
- ``published``: the numbers of the documents, as data.
- ``universes``: who subscribes to what, drawn or taken from data sets.
- ``bench``: benchmarks, ``bench.peers`` beside other systems.
- ``report``: results as pages, charts and tables.
- ``cli``: the commands that the laboratory adds to ``antiphon``.

It may import everything of ``antiphon``; nothing of ``antiphon`` imports it. Start with ``reproduction/experiment.py``.
"""

from pathlib import Path

import antiphon.kernel.process as contract


def is_compiled(file: str | None) -> bool:
    """Whether a module was loaded from what a C compiler made."""
    return file is not None and not file.endswith(".py")


# Compiled classes of the laboratory inherit from compiled ones of the product; from plain ones they would not work.
if any(Path(__file__).parent.glob("protocols/*/*.so")) and not is_compiled(contract.__file__):
    raise ImportError(
        "antiphon-lab is compiled and the antiphon that was found is not; install both from the same sources, or put "
        "the sources of both on the path"
    )
