"""Fabrics: how a publication travels. One package per family, one module per published protocol."""
