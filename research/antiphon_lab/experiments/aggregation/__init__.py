"""Causal aggregation: chapter 4 of the thesis of J. P. de Araujo, and our extensions."""
