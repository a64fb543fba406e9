"""Several readers at once: each step asks for what all of them want."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from hsparse.format.hdf5.reads import Reads

Found = TypeVar("Found")


def together(readers: Iterable[Reads[Found]]) -> Reads[list[Found]]:
    """Run readers side by side; return what they found, in their order. The first error of any ends them all."""
    running: list[Reads[Found]] = []
    found: dict[int, Found] = {}
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
