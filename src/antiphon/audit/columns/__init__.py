"""The judge by columns: millions of rows of a part of a trace at once, without a look at single rows.

``histories`` lays out what each node saw of each topic. ``happened_before`` finds which publication follows which,
``missing`` what need not be delivered, ``incarnations`` which rows belong to which life of a node. ``verdict`` judges a
part, and keeps an example of each violation.

The definitions are those of :mod:`antiphon.audit.oracle`; the computation is another, and tests compare the two. It
imports the kernel, numpy and pyarrow, and no Spark.

Start reading at ``histories.py``, then ``verdict.py``.
"""
