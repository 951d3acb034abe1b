"""Tells other doors something on a topic; where that fails, the log says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from antiphon.kernel.errors import AntiphonError
from antiphon.runtime.logging import StructuredLogger

N = TypeVar("N", bound=msgspec.Struct)


class Teller(Generic[N]):
    """Publishes notices for other doors; ``subject`` names their subject in the log."""

    def __init__(self, publish: Callable[[str, bytes], Any], subject: str, log: StructuredLogger) -> None:
        self._publish = publish
        self._subject = subject
        self._log = log
        self._encoder = msgspec.msgpack.Encoder()

    def say(self, topic: str, notice: N) -> bool:
        """Tell other doors; whether this node publishes at all."""
        try:
            self._publish(topic, self._encoder.encode(notice)).add_done_callback(self._on_said)
        except AntiphonError as error:
            self._warn(error)
            return False
        return True

    def _on_said(self, done: Any) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._warn(done.exception())

    def _warn(self, error: BaseException) -> None:
        self._log.warning(f"other doors were not told of {self._subject}", reason=str(error))
