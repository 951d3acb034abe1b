"""The audit as Spark jobs, for traces of any size.

``auditor`` judges the files of a run in a session that runs. ``traces`` opens them as a DataFrame. ``job`` deals the
rows into parts and lets :mod:`antiphon.audit.columns` judge each; ``intervals`` cuts large topics by time.
``total_order``, ``losses`` and ``incarnations`` are the same judgements as in the library, on DataFrames.

Here pyspark is imported, inside of functions, so that the rest of the audit works without it. Sessions are started
elsewhere (:mod:`antiphon.pipeline.session`) and passed in.

Start reading at ``auditor.py``, then ``job.py``.
"""
