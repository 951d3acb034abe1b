"""The data pipeline on Apache Spark: sweeps, metrics, audits and reports."""
