"""The judge by columns: millions of rows of a part of a trace at once, without a loop over rows.

``histories`` groups the rows of a part by node and topic. ``happened_before`` finds which publication follows which,
``missing`` which publications need not be delivered, ``incarnations`` which rows belong to which incarnation of a node.
``verdict`` judges a part, and keeps an example of each violation.

The definitions are those of :mod:`antiphon.audit.oracle`; the implementation is independent, and tests compare the two.
It imports the kernel, numpy and pyarrow, and no Spark.

Start reading at ``histories.py``, then ``verdict.py``.
"""
