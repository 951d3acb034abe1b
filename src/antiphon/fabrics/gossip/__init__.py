"""The gossip fabric: peer sampling, and structures that emerge from an epidemic overlay."""

from antiphon.fabrics.gossip.options import BrisaOptions, Rules, published_rules
from antiphon.fabrics.gossip.process import Brisa
from antiphon.fabrics.gossip.sampling.hyparview import HyParView, HyParViewOptions
from antiphon.fabrics.gossip.sampling.service import Connections, Neighbourhood, PeerSampling
from antiphon.fabrics.gossip.topic import Group

__all__ = [
    "Brisa",
    "BrisaOptions",
    "Connections",
    "Group",
    "HyParView",
    "HyParViewOptions",
    "Neighbourhood",
    "PeerSampling",
    "Rules",
    "published_rules",
]
