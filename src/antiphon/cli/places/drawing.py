"""The output of ``antiphon place`` for people: figures, a drawing of all latencies before and after, identifiers."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from antiphon.cli import output

BARS = 16
"""Rows of the drawing."""

BAR_WIDTH = 40


def show(found: dict[str, Any], before_ms: list[float], after_ms: list[float]) -> None:
    """Print the result."""
    estimated = found["estimated_delays"]
    note = f", {estimated} delays estimated" if estimated else ""
    output.console.print(f"{found['places']} places, mean delay {found['mean_delay_ms']:.1f} ms{note}")
    table = Table(box=None, pad_edge=False)
    table.add_column("identifiers")
    for heading in ("mean latency", "against random", "largest latency", "against random"):
        table.add_column(heading, justify="right")
    for name in (each for each in ("random", "now", "greedy", "chosen") if each in found):
        row = found[name]
        cells = []
        for quantity in ("mean_ms", "largest_ms"):
            base = found["random"][quantity]
            share = f"{100 * (row[quantity] / base - 1):+.0f} %" if base > 0 else ""
            cells += [f"{row[quantity]:,.1f} ms", "" if name == "random" else share]
        table.add_row(name, *cells)
    output.console.print(table)
    output.console.print("\nHow many pairs have which latency: # random, = chosen")
    for line in histogram(before_ms, after_ms):
        output.console.print(line, markup=False)
    output.console.print(f"\nThe longest way: {' > '.join(found['chosen']['longest_way'])}", markup=False)
    output.console.print("\nIdentifiers from 0 on; nodes that start one after the other get them in this order:")
    output.console.print(", ".join(row["place"] for row in found["identifiers"]), markup=False)


def histogram(before_ms: list[float], after_ms: list[float]) -> list[str]:
    """A line for each class of latencies and each of the two assignments, as long as its share of the pairs."""
    width_ms = max(before_ms + after_ms) / BARS or 1.0
    counts = [[0] * BARS, [0] * BARS]
    for which, latencies in enumerate((before_ms, after_ms)):
        for latency in latencies:
            counts[which][min(BARS - 1, int(latency / width_ms))] += 1
    most = max(map(max, counts))
    lines = []
    for at in range(BARS):
        label = f"{at * width_ms:7,.0f} to {(at + 1) * width_ms:5,.0f} ms"
        for which, sign in enumerate("#="):
            bar = sign * round(BAR_WIDTH * counts[which][at] / most)
            share = 100 * counts[which][at] / len(before_ms)
            lines.append(f"{label if which == 0 else '':19} {bar:{BAR_WIDTH}} {share:5.1f} %")
    return lines
