"""How tests unpack archives: with the filter that newer Pythons ask for, and without it where there is none."""

from __future__ import annotations

import tarfile
from typing import Any

SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""The options of ``extractall``; Python 3.11.4 was the first 3.11 with a filter."""
