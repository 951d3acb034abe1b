"""The audit as Spark jobs, for traces of any size.

``auditor`` judges the files of a run in an existing session. ``traces`` opens them as a DataFrame. ``job`` divides the
rows into parts and lets :mod:`antiphon.audit.columns` judge each; ``intervals`` cuts large topics by time.
``total_order``, ``losses`` and ``incarnations`` are the judgements of the library, on DataFrames.

These modules import pyspark inside of functions, so that the rest of the audit works without it. The caller starts a
session (:mod:`antiphon.pipeline.session`) and passes it in.

Start reading at ``auditor.py``, then ``job.py``.
"""
