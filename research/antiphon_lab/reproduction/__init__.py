"""The frame of all experiments: cases, repetitions, stored results and comparisons.

``experiment.py`` is the frame itself, ``registry.py`` the list of all experiments, ``documents.py`` reads the published
numbers, ``measurements.py`` keeps each measurement on disk, ``job.py`` runs many as one job, ``cost_model.py``
estimates how long each takes, ``figures.py`` describes figures as plain data. Start with ``experiment.py``.
"""
