"""EpTO: chapter 5 of the thesis of M. Matos, and our extensions."""
