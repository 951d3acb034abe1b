"""The fabrics that survive nodes that are lost for good, and the rounds that show it."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.fabrics.tree.fabric import TREE
from antiphon.torture.live.rounds.gossip import GossipRound
from antiphon.torture.live.rounds.round import Round
from antiphon.torture.live.rounds.tree import TreeRound

ROUNDS: Final[dict[str, type[Round]]] = {TREE.name: TreeRound, GOSSIP.name: GossipRound}
