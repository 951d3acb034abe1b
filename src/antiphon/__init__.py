"""Antiphon: publish/subscribe in which an answer never arrives before its question."""

__version__ = "0.1.0"
