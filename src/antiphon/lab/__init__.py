"""The laboratory: published experiments, run again and compared with what was published."""
