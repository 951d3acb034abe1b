"""The window: a page in the browser that shows a recorded run, a live cluster or a running simulation.

Start with :mod:`antiphon.console.recorded`, which answers the page about a recorded run, and with ``pages/console.js``,
the page itself. :mod:`antiphon.console.live` does the same for a cluster, :mod:`antiphon.console.played` for a
scenario. :mod:`antiphon.console.diagram` is pure: it turns the rows of a trace into dots, arrows and sentences.
:mod:`antiphon.console.http_server` moves bytes, and :mod:`antiphon.console.guard` decides about each request whether it
is answered. The package may import what live programs and judges consist of; only commands import it, so it can be
deleted with them and nothing else changes. Pages are files of the package. They load nothing from elsewhere.
"""
