"""One library of judges: whether a run kept what was promised to it, from its trace alone.

``promises`` says what was promised to the run of a trace, as its metadata has it. ``evidence`` reads the traces of all
nodes as one history. ``oracle`` keeps its own clocks and finds what is lost, doubled, invented or out of order;
``total_order``, ``majorities`` and ``incarnations`` help it. ``verdict`` puts this together, ``auditor`` does
everything from files to a ``report``, and ``explanations`` tell what happened around a violation. ``columns`` judges by
columns of numbers, ``spark`` does that to traces of any size, ``streaming`` watches a live topic.

The judges know no protocol and share no code with one: the audit imports the kernel and the trace alone. Only
``spark`` and ``streaming`` import pyspark. The simulator, campaigns, the pipeline and commands call the audit.

Start reading at ``oracle.py``; to judge a trace, call :func:`audit_trace`.
"""

from antiphon.audit.auditor import audit_trace
from antiphon.audit.report import Audit, Check

__all__ = ["Audit", "Check", "audit_trace"]
