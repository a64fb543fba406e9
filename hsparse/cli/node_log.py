"""The log of a node on standard error: each line has the id of the request; lines are text or JSON."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

import orjson

from hsparse.concurrency.request_trace import current_trace
from hsparse.errors import Misconfigured
from hsparse.sections import LogFormat, ServerSettings

TEXT = "%(asctime)s %(levelname)s %(name)s [%(request)s]: %(message)s"
NO_REQUEST = "-"


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON; `error` is the traceback if the record has an exception."""

    def format(self, record: logging.LogRecord) -> str:
        item = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "request": getattr(record, "request", NO_REQUEST),
            "message": record.getMessage(),
        }
        if record.exc_info:
            item["error"] = self.formatException(record.exc_info)
        return orjson.dumps(item).decode()


def add_request(record: logging.LogRecord) -> bool:
    """Add the id of the current request to a log record, and return True: this log filter accepts every record."""
    trace = current_trace()
    record.request = NO_REQUEST if trace is None else trace.id
    return True


def make_handler(form: LogFormat, stream: TextIO) -> logging.Handler:
    """Return a log handler that writes records to `stream` in the given format."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else logging.Formatter(TEXT))
    handler.addFilter(add_request)
    return handler


def configure_log(settings: ServerSettings) -> None:
    """Log to standard error; raise `Misconfigured` for an unknown level."""
    level = settings.log_level.upper()
    if level not in logging.getLevelNamesMapping():
        raise Misconfigured(f"--log-level {settings.log_level} is not DEBUG, INFO, WARNING or ERROR.")
    logging.basicConfig(level=level, handlers=[make_handler(settings.log_format, sys.stderr)])


def write_line(line: str) -> None:
    """Write a line to standard error without `logging`, which would take several times as long."""
    with suppress(OSError):  # standard error is closed, so this cannot be reported
        sys.stderr.write(line)  # line-buffered
