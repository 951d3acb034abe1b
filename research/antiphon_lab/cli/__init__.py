"""The commands that the laboratory adds to ``antiphon``: bench, report, reproduce, universe, and stages of the tour."""
