"""The parent of Spark's Python workers: it has imported what they need, so that a new worker begins at once.

Spark starts one such parent per executor and forks workers from it; each worker would otherwise spend a second or two
on imports, again after every death of a worker.
"""

from __future__ import annotations

import gc

import pandas
import pyarrow.parquet
from pyspark import daemon, worker

import antiphon.pipeline.jobs
import antiphon.pipeline.sweep_cells

LOADED = (antiphon.pipeline.sweep_cells, antiphon.pipeline.jobs, pandas, pyarrow.parquet, worker)

if __name__ == "__main__":
    # Imported modules are never collected, so that workers share their memory.
    gc.collect()
    gc.freeze()
    daemon.manager()
