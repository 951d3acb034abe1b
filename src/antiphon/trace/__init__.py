"""Traces: the events of a run, as rows of one schema for every host; see :mod:`antiphon.trace.store`."""
