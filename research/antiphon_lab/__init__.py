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
