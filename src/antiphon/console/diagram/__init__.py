"""The space-time diagram of a run: which rows a picture needs, what followed what, and why a message waited.

Pure: it reads tables, and neither files nor clocks. It shares no code with the judges, so a picture of a violation is a
second opinion. Start with :mod:`antiphon.console.diagram.run_index`.
"""
