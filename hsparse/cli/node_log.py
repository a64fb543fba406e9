"""The log of a node on standard error: lines with the request's id, as text or as JSON."""

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
    """Formats a record as one line of JSON, with an exception's traceback as `error`."""

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
    """Add the id of the current request to a log record; a filter that lets every record pass."""
    trace = current_trace()
    record.request = NO_REQUEST if trace is None else trace.id
    return True


def make_handler(form: LogFormat, stream: TextIO) -> logging.Handler:
    """Return a handler that writes records in the given format."""
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
    """Write to standard error at once; `logging` takes several times as long."""
    with suppress(OSError):  # standard error is closed, so this cannot be reported
        sys.stderr.write(line)  # line-buffered
