"""Ginger as published, with a switch for each defect that shows."""
