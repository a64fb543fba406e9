"""Reading a file without I/O: readers are generators that ask for byte ranges and are sent the bytes.

The same reader then works over an object store, a local file and memory, and whoever runs it decides what is
fetched at once, merged or cached. A reader that needs the bytes of two places asks for both in one step.

Several readers at once: each step asks for what all of them want.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from hsparse.format.buffer import Buffer
from hsparse.format.hdf5.reads import Reads

Found = TypeVar("Found")


class ByteRange(NamedTuple):
    """`size` bytes of a file from `address` on, counted from the file's first byte."""

    address: int
    size: int


Reads: TypeAlias = Generator[tuple[ByteRange, ...], Sequence[Buffer], Found]
"""What a reader is: it yields the ranges it wants, all at once, is sent their bytes in the same order, and
returns what it found. Readers call each other with `yield from`."""


def run_reads(reads: Reads[Found], fetch: Callable[[tuple[ByteRange, ...]], Sequence[Buffer]]) -> Found:
    """Run a reader to its end; `fetch` returns the bytes of ranges, exactly as many as were asked for."""
    try:
        wanted = next(reads)
        while True:
            wanted = reads.send(fetch(wanted))
    except StopIteration as done:
        found: Found = done.value
        return found


Result = TypeVar("Found")


def concurrently(readers: Iterable[Reads[Result]]) -> Reads[list[Result]]:
    """Run readers side by side; return what they found, in their order. The first error of any ends them all."""
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
