"""StaN: chapter 3 of the thesis of M. Matos, and our extensions."""
