"""Published experiments, one folder per system, one module per figure, table or section.

A module declares what is run (cases), how one case is measured, and how measurements are compared with the document
(:mod:`antiphon_lab.reproduction.experiment`). :mod:`antiphon_lab.reproduction.registry` lists them all by name.
"""
