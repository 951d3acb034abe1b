"""One library of judges: whether a run kept its promises, from its trace alone.

``promises`` reads the promises from the metadata of a trace. ``evidence`` reads the traces of all nodes as one history.
``oracle`` keeps its own clocks and finds publications that are lost, duplicated, invented or out of order;
``total_order``, ``majorities`` and ``incarnations`` help it. ``verdict`` combines these, ``auditor`` does everything
from files to a ``report``, and ``explanations`` show the rows around a violation. ``columns`` judges by columns of
numbers, ``spark`` does so for traces of any size, and ``streaming`` watches a live topic.

The judges know no protocol and share no code with one: the audit imports the kernel and the trace alone. Only
``spark`` and ``streaming`` import pyspark. The simulator, campaigns, the pipeline and commands call the audit.

Start reading at ``oracle.py``; to judge a trace, call :func:`audit_trace`.
"""

from antiphon.audit.auditor import audit_trace
from antiphon.audit.report import Audit, Check

__all__ = ["Audit", "Check", "audit_trace"]
