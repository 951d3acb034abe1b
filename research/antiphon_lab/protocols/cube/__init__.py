"""Protocols on the virtual hypercube, as published: VCube-PS, causal aggregation, and their rivals."""
