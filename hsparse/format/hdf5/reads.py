"""Reading a file without I/O: readers are generators that yield byte ranges and are sent their bytes.

The same reader works over an object store, a local file and memory; the caller decides what is merged or cached. A
reader that needs the bytes of two places asks for both in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from hsparse.format.codec_library import Buffer

Result = TypeVar("Result")


class ByteRange(NamedTuple):
    """`size` bytes of a file from `address` on, counted from the file's first byte."""

    address: int
    size: int


Reads: TypeAlias = Generator[tuple[ByteRange, ...], Sequence[Buffer], Result]
"""A reader: it yields the ranges that it needs next, is sent their bytes in the same order, and returns a result.
Readers call each other with `yield from`."""


def run_reads(reads: Reads[Result], fetch: Callable[[tuple[ByteRange, ...]], Sequence[Buffer]]) -> Result:
    """Run a reader to its end; `fetch` returns the bytes of ranges, exactly as many as were asked for."""
    try:
        wanted = next(reads)
        while True:
            wanted = reads.send(fetch(wanted))
    except StopIteration as done:
        found: Result = done.value
        return found


def concurrently(readers: Iterable[Reads[Result]]) -> Reads[list[Result]]:
    """Run readers concurrently; return their results in order. Each step asks for what all of them need.

    The first error of any reader ends them all.
    """
    running: list[Reads[Result]] = []
    found: dict[int, Result] = {}
    wanted = {}
    for number, reader in enumerate(readers):
        running.append(reader)
        try:
            wanted[number] = next(reader)
        except StopIteration as done:
            found[number] = done.value
    while wanted:
        sent = iter((yield tuple(one for ranges in wanted.values() for one in ranges)))
        asked, wanted = wanted, {}
        for number, ranges in asked.items():
            data = [next(sent) for _ in ranges]
            try:
                wanted[number] = running[number].send(data)
            except StopIteration as done:
                found[number] = done.value
    return [found[number] for number in range(len(running))]
