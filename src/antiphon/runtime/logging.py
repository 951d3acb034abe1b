"""Structured logs: one line per event, with named values, as text for people or as JSON for machines.

Nothing is logged per message. Applications that configure :mod:`logging` themselves, or not at all, get the records
under the name ``antiphon``. The message is the event with its values; ``record.event`` and ``record.values`` have them
apart.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TextIO


class LoggedEvent:
    """An event with its values as text, for handlers that know nothing of values: ``lost node=1``."""

    def __init__(self, event: str, values: dict[str, object]) -> None:
        self.event = event
        self.values = values

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={on_one_line(value)}" for name, value in self.values.items())])


class StructuredLogger:
    """Writes events with named values to a standard logger."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"antiphon.{name}")

    def debug(self, event: str, **values: object) -> None:
        """Something for those who look for a fault."""
        self._log(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        """Something an operator wants to know."""
        self._log(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        """Something an operator should look at."""
        self._log(logging.WARNING, event, values)

    def error(self, event: str, cause: BaseException | None = None, **values: object) -> None:
        """Something that went wrong here; with the stack of ``cause`` if there is one."""
        self._log(logging.ERROR, event, values, cause)

    def _log(self, level: int, event: str, values: dict[str, object], cause: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            message = LoggedEvent(event, values)
            self._logger.log(level, message, extra={"event": event, "values": values}, exc_info=cause)


def logger(name: str) -> StructuredLogger:
    """The logger of one part of a node."""
    return StructuredLogger(name)


def on_one_line(value: object) -> str:
    """A value as text; what others have sent may hold ends of lines, and must not look like lines of the log."""
    text = str(value)
    return text if text.isprintable() else ascii(text)


class LineFormatter(logging.Formatter):
    """``12:00:01 warning links: cannot connect address=127.0.0.1:7400``"""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        part = record.name.removeprefix("antiphon.")
        line = f"{clock} {record.levelname.lower()} {part}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, part, event, and the named values."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "part": record.name.removeprefix("antiphon."),
            "event": getattr(record, "event", record.getMessage()),
            **getattr(record, "values", {}),
        }
        if record.exc_info:
            fields["stack"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def write_logs(level: str = "info", as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send the logs of this process to a stream, standard error unless told otherwise."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    root = logging.getLogger("antiphon")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
