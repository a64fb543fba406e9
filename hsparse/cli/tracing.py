"""The tracer of a node's process, if its environment asks for spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hsparse.concurrency.request_trace import Tracer
from hsparse.config import exports_spans
from hsparse.open_telemetry import make_tracer


@contextmanager
def node_tracer(service: str) -> Iterator[Tracer | None]:
    """Yield the tracer of a process, None if it exports no spans; what is left is exported at the end."""
    if not exports_spans():
        yield None
        return
    tracer = make_tracer(service)
    try:
        yield tracer
    finally:
        tracer.close()
