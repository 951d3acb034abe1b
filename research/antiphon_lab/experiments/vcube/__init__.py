"""VCube-PS: chapter 5 of the thesis of J. P. de Araujo and the SBAC-PAD paper, and our extensions."""
