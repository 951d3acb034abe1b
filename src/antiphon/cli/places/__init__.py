"""``antiphon place``: identifiers on the cube by delays. ``command.py`` computes them, ``drawing.py`` prints them."""
