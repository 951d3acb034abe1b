"""A page about a universe: how large it is, two distributions, and the correlation of its topics as a heat map.

The heat map is a picture with a grey pixel per pair of topics, or a square of pixels if there are few. It is written
here, byte by byte, because a grey picture needs no library.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

import antiphon
from antiphon.kernel.errors import UsageError
from antiphon_lab.report.page import environment, resource
from antiphon_lab.report.write import made_now
from antiphon_lab.reproduction.figures import Figure

SIDE = 600
"""About as many pixels as a picture is wide, unless there are more topics."""
PNG = b"\x89PNG\r\n\x1a\n"
EIGHT_BITS, GREY = 8, 0

Described = Mapping[str, float | int | None]


@dataclass(frozen=True)
class HeatMap:
    """Coefficients of pairs, and their description."""

    matrix: npt.NDArray[np.float64]
    caption: str


def grey_png(matrix: npt.NDArray[np.float64]) -> bytes:
    """A picture of a square matrix: white for 0 and less, black for 1."""
    size = max(1, SIDE // len(matrix))
    shades = np.rint(255 * (1.0 - np.clip(matrix, 0.0, 1.0))).astype(np.uint8)
    pixels = np.repeat(np.repeat(shades, size, axis=0), size, axis=1)
    height, width = pixels.shape
    # Every line begins with the number of its filter, which is none.
    lines = np.concatenate((np.zeros((height, 1), np.uint8), pixels), axis=1)
    header = struct.pack(">IIBBBBB", width, height, EIGHT_BITS, GREY, 0, 0, 0)
    return PNG + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + chunk(b"IEND", b"")


def chunk(name: bytes, data: bytes) -> bytes:
    """A part of the file: its length, name, content and check sum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def write_picture(heat: HeatMap, path: Path) -> None:
    """Write the heat map alone."""
    write(path, grey_png(heat.matrix))


def write_page(
    source: str,
    sizes: Mapping[str, int],
    columns: Mapping[str, Described],
    figures: Sequence[Figure],
    heat: HeatMap | None,
    path: Path,
) -> None:
    """Write the page; everything is in the one file."""
    picture = None if heat is None else base64.b64encode(grey_png(heat.matrix)).decode("ascii")
    page = (
        environment()
        .get_template("page.universe.html.j2")
        .render(
            source=source,
            sizes=sizes,
            columns=columns,
            keys=list(next(iter(columns.values()))),
            figures=figures,
            heat=heat,
            picture=picture,
            made=made_now(),
            version=antiphon.__version__,
            style=Markup(resource("page.css")),
            script=Markup(resource("page.js")),
        )
    )
    write(path, page.encode())


def write(path: Path, content: bytes) -> None:
    """Write a file, or say why not."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
