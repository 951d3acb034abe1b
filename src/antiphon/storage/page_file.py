"""Reads the pages of a log's file without SQLite, so that damage to one page hides no other.

SQLite descends from the root of its tree, and gives up where a page cannot be read. This module looks at the pages one
by one: those of the main file, under those of the whole transactions in the write-ahead log. It follows the format of
SQLite files, as far as a log uses it: one table without an index, whose rows have two blobs.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from struct import Struct as Layout
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from antiphon.storage.log_formats import DamagedError

FREE_TRUNK_PLACE: Final = 32
"""Where the first page of a file names the first page with a list of free ones, and then how many are free."""

WAL_HEADER: Final = Layout(">IIIIIIII")
FRAME_HEADER: Final = Layout(">IIIIII")
WAL_MAGIC: Final = 0x377F0682
TREE_LEAF: Final = 0x0D
LEAF_HEADER_BYTES: Final = 8
POINTER: Final = Layout(">I")
CELL_PLACE: Final = Layout(">H")
FIRST_BLOB_TYPE: Final = 12
LARGEST_VALUE_BYTES: Final = 1 << 30


class Transaction(NamedTuple):
    """One transaction of the write-ahead log: where its pages are, and whether the checksums hold up to it."""

    places: dict[int, int]
    page_count: int
    is_whole: bool


class PageFile:
    """The pages of a log, by number from 1; a page that is not there is None."""

    def __init__(self, database: Path, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._main = database.open("rb")
        self._wal_path = database.with_name(f"{database.name}-wal")
        self._wal = self._wal_path.open("rb") if self._wal_path.exists() else None
        self._places: dict[int, int] = {}
        self.page_count = -(-database.stat().st_size // page_bytes)
        wal_bytes = self._wal_path.stat().st_size if self._wal is not None else 0
        # A damaged number of a page, or of all pages, must not send anybody through thousands of millions of them.
        self._pages_at_most = self.page_count + wal_bytes // page_bytes + 1

    def close(self) -> None:
        """Close the files."""
        self._main.close()
        if self._wal is not None:
            self._wal.close()

    def page(self, number: int) -> bytes | None:
        """One page, of the write-ahead log if that has it."""
        place = self._places.get(number)
        return self._main_page(number) if place is None else self._wal_page(place)

    def _main_page(self, number: int) -> bytes | None:
        self._main.seek((number - 1) * self.page_bytes)
        content = self._main.read(self.page_bytes)
        return content if len(content) == self.page_bytes else None

    def _wal_page(self, place: int) -> bytes:
        assert self._wal is not None, "a place in the write-ahead log is known"
        self._wal.seek(place)
        return self._wal.read(self.page_bytes)

    # The write-ahead log.

    def add(self, transaction: Transaction) -> None:
        """Let the pages of a transaction count more than earlier ones."""
        self._places.update(transaction.places)
        self.page_count = transaction.page_count
        for number in [number for number in self._places if number > self.page_count]:
            del self._places[number]

    def transactions(self) -> Iterator[Transaction]:
        """The finished transactions of the write-ahead log, in order; also those behind a damaged place."""
        header = b"" if self._wal is None else self._read_wal(0, WAL_HEADER.size)
        if len(header) < WAL_HEADER.size:
            return
        magic, _, page_bytes, _, salt_1, salt_2, sum_1, sum_2 = WAL_HEADER.unpack(header)
        if magic & ~1 != WAL_MAGIC or page_bytes != self.page_bytes:
            return
        is_swapped = (magic & 1 == 1) != (sys.byteorder == "big")
        sums = checksum(header[:24], (0, 0), is_swapped)
        is_whole = sums == (sum_1, sum_2)
        place, places = WAL_HEADER.size, dict[int, int]()
        while len(frame := self._read_wal(place, FRAME_HEADER.size + self.page_bytes)) == 24 + self.page_bytes:
            number, page_count, frame_salt_1, frame_salt_2, sum_1, sum_2 = FRAME_HEADER.unpack_from(frame)
            if number > self._pages_at_most or page_count > self._pages_at_most:
                is_whole = False
            elif (frame_salt_1, frame_salt_2) == (salt_1, salt_2):
                if is_whole:
                    sums = checksum(frame[24:], checksum(frame[:8], sums, is_swapped), is_swapped)
                    is_whole = sums == (sum_1, sum_2)
                places[number] = place + FRAME_HEADER.size
                if page_count:
                    yield Transaction(places, page_count, is_whole)
                    places = {}
            elif is_whole:
                return  # left over from before the file was begun again
            place += FRAME_HEADER.size + self.page_bytes

    def _read_wal(self, place: int, byte_count: int) -> bytes:
        assert self._wal is not None, "the caller has looked"
        self._wal.seek(place)
        return self._wal.read(byte_count)

    def free_pages(self) -> set[int] | None:
        """The pages that are free; None if the lists of them are damaged."""
        first = self.page(1)
        if first is None:
            return None
        (trunk,), (count,) = (
            POINTER.unpack_from(first, FREE_TRUNK_PLACE),
            POINTER.unpack_from(first, FREE_TRUNK_PLACE + 4),
        )
        free: set[int] = set()
        while trunk and trunk <= self.page_count and trunk not in free:
            page = self.page(trunk)
            if page is None:
                return None
            free.add(trunk)
            (length,) = POINTER.unpack_from(page, 4)
            if length > self.page_bytes // 4 - 2:
                return None
            free.update(number for (number,) in POINTER.iter_unpack(page[8 : 8 + 4 * length]))
            (trunk,) = POINTER.unpack_from(page)
        return free if trunk == 0 and len(free) == count else None

    # Cells.

    def rows(self, number: int) -> Iterator[tuple[int, bytes, bytes] | None]:
        """The rows on a page: key, header and body; None for one that cannot be read; nothing if it holds no rows."""
        page = self.page(number)
        return iter(()) if page is None or number == 1 else self._rows_on(page)

    def rows_of(self, transaction: Transaction) -> Iterator[tuple[int, bytes, bytes] | None]:
        """The rows on the pages of a transaction that is not added yet."""
        for number, place in transaction.places.items():
            if number > 1:
                yield from self._rows_on(self._wal_page(place))

    def _rows_on(self, page: bytes) -> Iterator[tuple[int, bytes, bytes] | None]:
        if page[0] != TREE_LEAF:
            return
        (count,) = CELL_PLACE.unpack_from(page, 3)
        for index in range(min(count, (self.page_bytes - LEAF_HEADER_BYTES) // 2)):
            try:
                (place,) = CELL_PLACE.unpack_from(page, LEAF_HEADER_BYTES + 2 * index)
                yield self._row(page, place)
            except (DamagedError, IndexError, StructError):
                yield None

    def _row(self, page: bytes, place: int) -> tuple[int, bytes, bytes]:
        size, place = number_at(page, place)
        key, place = number_at(page, place)
        if key >= 1 << 63:
            key -= 1 << 64
        content = self._content(page, place, size)
        header_end, at = number_at(content, 0)
        values: list[int] = []
        while at < header_end:
            kind, at = number_at(content, at)
            values.append(kind)
        if len(values) != 3 or values[0] != 0 or any(kind < FIRST_BLOB_TYPE or kind % 2 for kind in values[1:]):
            raise DamagedError("a row has other values than a row of a log")
        lengths = [(kind - FIRST_BLOB_TYPE) // 2 for kind in values[1:]]
        middle = header_end + lengths[0]
        if len(content) != middle + lengths[1]:
            raise DamagedError("a row has another length than it says")
        return key, content[header_end:middle], content[middle:]

    def _content(self, page: bytes, place: int, size: int) -> bytes:
        """The content of a row: on its page, and on overflow pages if it is long."""
        usable = self.page_bytes
        if size > LARGEST_VALUE_BYTES:
            raise DamagedError("a row is longer than a batch can be")
        most, least = usable - 35, (usable - 12) * 32 // 255 - 23
        local = size
        if size > most:
            local = least + (size - least) % (usable - 4)
            local = local if local <= most else least
        parts = [page[place : place + local]]
        if local < size:
            (follower,) = POINTER.unpack_from(page, place + local)
            missing = size - local
            while missing > 0:
                overflow = self.page(follower) if 1 < follower <= self.page_count else None
                if overflow is None:
                    raise DamagedError("a row goes on at a page that is not there")
                part = overflow[4 : 4 + missing]
                parts.append(part)
                missing -= len(part)
                (follower,) = POINTER.unpack_from(overflow)
        content = b"".join(parts)
        if len(content) != size:
            raise DamagedError("a row goes beyond its page")
        return content


def number_at(content: bytes, place: int) -> tuple[int, int]:
    """A number of variable length, and the place behind it."""
    value = 0
    for index in range(8):
        byte = content[place + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + index + 1
    return value << 8 | content[place + 8], place + 9


def checksum(content: bytes, sums: tuple[int, int], is_swapped: bool) -> tuple[int, int]:
    """The running checksum of a write-ahead log."""
    words = array("I", content)
    if is_swapped:
        words.byteswap()
    first, second = sums
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & 0xFFFFFFFF
        second = (second + words[place + 1] + first) & 0xFFFFFFFF
    return first, second
