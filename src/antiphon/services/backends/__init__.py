"""Where replicas keep the state of a service: ``sqlite_store.py`` in a file, ``postgres_store.py`` in a database.

``sqlite_tables.py`` and ``postgres_tables.py`` bring tables into snapshots, in the form of ``table_pieces.py``.
Each store implements :class:`antiphon.services.store.StoreBackend`. Imports ``kernel``,
``services.errors`` and ``services.store``.
"""
