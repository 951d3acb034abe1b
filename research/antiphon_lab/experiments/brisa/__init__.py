"""BRISA, its rivals, and the peer sampling below: chapter 4 of the thesis of M. Matos."""
