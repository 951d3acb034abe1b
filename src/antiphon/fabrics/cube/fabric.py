"""What the cube says about itself."""

from __future__ import annotations

from typing import Final

from antiphon.fabrics.fabric import Fabric

CUBE: Final = Fabric("cube", "as a cube", keeps_checkpoints=True)
