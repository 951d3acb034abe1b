"""All fabrics by name, the default first. To add one, write its folder and add it here."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.cube.fabric import CUBE
from antiphon.fabrics.fabric import Fabric
from antiphon.fabrics.gossip.fabric import GOSSIP
from antiphon.fabrics.tree.fabric import TREE

FABRICS: Final[dict[str, Fabric]] = {fabric.name: fabric for fabric in (CUBE, TREE, GOSSIP)}
DEFAULT_FABRIC: Final = next(iter(FABRICS))
