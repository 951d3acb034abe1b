"""Segments: the messages that an outbox hands over when the turn of the loop ends, as one batch of the protocol."""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64

from antiphon.api.columns import NO_AUTHOR, Author, Columns


@final
class Segment:
    """Messages that follow each other and become one batch; ``receipt`` is finished when they are accepted.

    ``about`` are the numbers of the keys that all of them are about; ``author`` is the client that published them, with
    its own number for the batch.
    """

    def __init__(
        self,
        order: str,
        about: tuple[int, ...],
        columns: Columns,
        size: i64,
        receipt: Any,
        author: Author = NO_AUTHOR,
        is_foreign: bool = False,
    ) -> None:
        self.order: Final[str] = order
        self.about: Final[tuple[int, ...]] = about
        self.columns: Final[Columns] = columns
        self.size: Final[i64] = size
        self.receipt: Final[Any] = receipt
        self.author: Final[Author] = author
        # Whether a client published them, which is told itself what becomes of them.
        self.is_foreign: Final[bool] = is_foreign
