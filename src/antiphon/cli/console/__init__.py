"""The commands that open a page in the browser. Start with :mod:`antiphon.cli.console.recorded`."""
