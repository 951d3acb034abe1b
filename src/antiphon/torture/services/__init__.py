"""Campaigns of services: replicas and callers at real nodes in virtual time, and faults of all that they stand on.

``schedules.py`` draws a schedule from a seed, ``world.py`` lets it happen to a cluster of :mod:`antiphon.testing`, and
``campaign.py`` runs, shrinks and writes schedules. Replicas serve ``ledger.py`` over ``faulty_store.py``.
:mod:`antiphon.audit.services` judges. Imports what services run on, and ``testing``.
"""
