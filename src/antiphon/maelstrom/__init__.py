"""Maelstrom's protocol: a third host for Antiphon's processes, and a small runner with Maelstrom's workloads and
measures.
"""
