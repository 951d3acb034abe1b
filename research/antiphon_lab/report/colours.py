"""The same system has the same colour in all figures; the style sheet defines each colour on light and dark pages."""

from __future__ import annotations

COLOURS = {
    "VCube-PS": "blue",
    "VCube-PS repaired": "green",
    "VCube-PS repaired, directory": "amber",
    "SRPT": "orange",
    "SRPT-S": "orange",
    "SRPT-B": "purple",
    "compressed vector clocks": "purple",
    "causal barriers": "blue",
    "aggregation": "pink",
    "no aggregation": "slate",
    "timer": "amber",
    "single tree": "orange",
    "reception": "cyan",
    "delivery": "pink",
    "time in pending": "amber",
    "aggregated": "pink",
    "delayed": "amber",
    "own tuple": "blue",
    "whole views": "cyan",
    "leavers forgotten": "purple",
    "repaired, window 1": "amber",
    "repaired": "green",
    "published": "ink",
    "eventual order": "cyan",
    "causal order": "blue",
    "total order": "orange",
    "Ginger, ours": "green",
    "fault tolerance": "green",
    "expanded views": "blue",
    "fixed views": "amber",
    "filled views": "green",
    "BRISA tree": "blue",
    "BRISA DAG": "purple",
    "flooding": "orange",
    "delay-aware": "green",
    "heavy tail": "orange",
    "counting": "slate",
    "HyParView": "blue",
    "Cyclon": "orange",
    "Newscast": "purple",
    "Scamp": "green",
    "random graph": "slate",
    "BRISA": "blue",
    "SimpleGossip": "orange",
    "SimpleTree": "slate",
    "TAG": "purple",
    "Plumtree": "green",
    "Thicket": "green",
    "SplitStream": "purple",
    "livejournal": "blue",
    "wikipedia": "orange",
    "StaN": "blue",
    "greedy": "orange",
    "initial": "slate",
    "EpTO": "purple",
}

DASHES = ("", "7 4", "2 3.5", "11 3 2 3", "15 5", "9 3 2 3 2 3")
"""The line styles of the series of one system."""

SHADES = (0.88, 0.5, 0.26, 0.1)
"""The bar shades of the series of one system."""


def colour_of(system: str) -> str:
    """The name of a colour; the colour of text for unknown systems."""
    return COLOURS.get(system, "ink")


def dash_of(variant: int) -> str:
    """The dashes of a line, as SVG writes them."""
    return DASHES[variant % len(DASHES)]


def shade_of(variant: int) -> float:
    """How opaque a bar is."""
    return SHADES[variant % len(SHADES)]
