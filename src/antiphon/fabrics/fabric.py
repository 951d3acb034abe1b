"""What a fabric says about itself, so that nobody else has to compare its name.

Each fabric describes itself once, in ``fabric.py`` of its folder; :mod:`antiphon.fabrics.registry` lists them. Hosts,
commands and campaigns ask the description.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fabric:
    """One way in which publications travel: how a live cluster of it is set up, and what its hosts do for it."""

    name: str
    shape: str
    """How its nodes are connected, in words that complete "connected ..."."""
    orders: tuple[str, ...] = ("none", "fifo", "causal", "total")
    has_keys: bool = True
    """Whether total order is per key, and needs a majority."""
    table: str | None = None
    """The table of settings that only this fabric has."""
    needs_addresses: bool = False
    """Whether its nodes know each other's addresses before they start."""
    mixes_keys: bool = True
    """Whether messages about different keys may share a batch."""
    has_barriers: bool = False
    """Whether a message through the fabric tells that all before it have come; else processes say what is past."""
    keeps_checkpoints: bool = False
    """Whether a node that restarts goes on from what its log counted as past."""
    serves_from_log: bool = False
    """Whether buffers are so short that peers ask the log for what they miss."""
    may_pass_over: bool = False
    """Whether a node may pass a message over that nobody within reach has, and weaker messages overtake total ones."""
    is_secured: bool = False
    """Whether a trace says which epochs order totally."""
    may_lose_with_node: bool = False
    """Whether a message that a node has accepted may be lost with that node."""
