"""Where replicas keep the state of a service: ``sqlite_store.py`` in a file, ``postgres_store.py`` in a database.

Each implements :class:`antiphon.services.store.StoreBackend`. Imports ``kernel`` and ``services.store``.
"""
