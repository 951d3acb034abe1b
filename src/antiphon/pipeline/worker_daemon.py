"""The parent of Spark's Python workers: it has loaded what they need, so that a new worker begins at once.

Spark starts one such parent per executor and forks workers from it; each would otherwise spend a second or two on
imports, and again whenever one has died.
"""

from __future__ import annotations

import gc

import pandas
import pyarrow.parquet
from pyspark import daemon, worker

import antiphon.pipeline.cells
import antiphon.pipeline.jobs

LOADED = (antiphon.pipeline.cells, antiphon.pipeline.jobs, pandas, pyarrow.parquet, worker)

if __name__ == "__main__":
    # What is loaded is never collected, so that workers share its memory.
    gc.collect()
    gc.freeze()
    daemon.manager()
