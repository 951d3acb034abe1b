"""Where measured figures come from."""

from __future__ import annotations

import datetime
import os
import platform

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """A machine at one moment."""

    date: str
    system: str
    python: str
    cores: int
    load_average: tuple[float, float, float]

    @staticmethod
    def here() -> Machine:
        """This machine, now."""
        return Machine(
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            system=platform.platform(),
            python=platform.python_version(),
            cores=os.cpu_count() or 1,
            load_average=os.getloadavg(),
        )
