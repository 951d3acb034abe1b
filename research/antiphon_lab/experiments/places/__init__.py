"""Places: what delays between cities do to trees, and what is gained when near nodes are reached first.

No document measures it. All experiments draw their matrices from the product's table of cities, one per repetition,
with detours and access lines that differ (``model.py``), so no choice of the product was made with these matrices in
sight.
"""
