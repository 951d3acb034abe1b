"""The console of a live cluster, served by one of its nodes.

``picture`` is pure: it turns the statuses of nodes into what the page shows, and finds what has changed. ``watching``
asks the nodes while windows are open, and ``following`` listens to one topic without slowing it. Start with
:mod:`antiphon.console.live.site`.
"""
