"""A program that shares one client between threads, forked processes and a spawned one, and checks every answer.

    python -m tests.client.shared_client URL CALLS

It prints what is wrong, a line for each answer, and exits with 1 if anything is. It forks while its threads send, so it
is no part of the process that runs the tests.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np

from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import HsparseError

THREADS = 16
FORKS = 4
FORK_THREADS = 2
SPAWN_CALLS = 60
ROWS, WIDTH = 40, 48
"""The rows that are only read: row r has its first r + 1 elements, of values `value_of`. Others have a writer each."""


def value_of(row: int, column: int) -> int:
    return 1000 * row + column


def create(connection: Connection) -> SparseDataset:
    """Return a dataset with the rows that are read."""
    connection.json("PUT", "/", {})
    shape = (ROWS + THREADS + FORKS * FORK_THREADS + 1, WIDTH)
    dataset = SparseDataset.create(connection, "/shared", shape, "i4", (8, WIDTH))
    places = [(row, column) for row in range(ROWS) for column in range(row + 1)]
    dataset.write(places, [value_of(*place) for place in places])
    return dataset


class Caller:
    """Sends calls of every kind, and keeps what is wrong about the answers; writer number `number` has a row."""

    def __init__(self, dataset: SparseDataset, number: int) -> None:
        self.wrong: list[str] = []
        self._dataset = dataset
        self._number = number
        self._own = ROWS + number

    def call(self, count: int) -> None:
        kinds = (self._count, self._read, self._defined, self._dense, self._points, self._write, self._shape)
        for turn in range(count):
            row = (7 * self._number + 11 * turn) % ROWS
            kind = kinds[(turn + self._number) % len(kinds)]
            try:
                kind(row, turn)
            except (HsparseError, ValueError, TypeError, KeyError) as error:
                self.wrong.append(f"{kind.__name__} of row {row}: {error!r}")

    def _check(self, found: object, wanted: object) -> None:
        if found != wanted:
            self.wrong.append(f"{found} is not {wanted}")

    def _count(self, row: int, turn: int) -> None:
        self._check(self._dataset.count(f"[{row},:]"), row + 1)

    def _read(self, row: int, turn: int) -> None:
        places, values = self._dataset.read(f"[{row},:]")
        self._check(places.tolist(), [[row, column] for column in range(row + 1)])
        self._check(values.tolist(), [value_of(row, column) for column in range(row + 1)])

    def _defined(self, row: int, turn: int) -> None:
        found = self._dataset.defined(f"[{row},1:]").tolist()
        self._check(found, [[row, column] for column in range(1, row + 1)])

    def _dense(self, row: int, turn: int) -> None:
        wanted = np.zeros(WIDTH, np.int32)
        wanted[: row + 1] = [value_of(row, column) for column in range(row + 1)]
        self._check(self._dataset.read_dense(f"[{row},:]")[0].tolist(), wanted.tolist())

    def _points(self, row: int, turn: int) -> None:
        found = self._dataset.read_points([(row, row), (row, 0), (ROWS - 1, row)])
        self._check(found.tolist(), [value_of(row, row), value_of(row, 0), value_of(ROWS - 1, row)])

    def _write(self, row: int, turn: int) -> None:
        place = (self._own, turn % WIDTH)
        self._dataset.write([place], [turn])
        self._check(self._dataset.read_points([place]).tolist(), [turn])

    def _shape(self, row: int, turn: int) -> None:
        self._check(self._dataset.refresh()[1], WIDTH)


def call_in_threads(dataset: SparseDataset, numbers: range, calls: int, begun: threading.Event) -> list[str]:
    """Send `calls` calls in a thread for each number, return what is wrong; set `begun` when some have answers."""
    callers = [Caller(dataset, number) for number in numbers]
    each = calls // len(callers)

    def run(caller: Caller) -> None:
        caller.call(min(each, 10))
        begun.set()
        caller.call(max(0, each - 10))

    with ThreadPoolExecutor(len(callers)) as pool:
        list(pool.map(run, callers))
    return [line for caller in callers for line in caller.wrong]


def fork_caller(dataset: SparseDataset, first: int, calls: int) -> int:
    """Fork a process that shares the dataset; return its id."""
    process = os.fork()
    if process:
        return process
    try:
        wrong = call_in_threads(dataset, range(first, first + FORK_THREADS), calls, threading.Event())
        print("".join(f"forked: {line}\n" for line in wrong), end="", flush=True)
        os._exit(bool(wrong))
    finally:
        os._exit(2)


def call_once_spawned(dataset: SparseDataset, number: int) -> list[str]:
    caller = Caller(dataset, number)
    caller.call(SPAWN_CALLS)
    return caller.wrong


def main(url: str, calls: int) -> int:
    with Connection(url, "/shared-client.h5", user="ada", password="any") as connection:
        dataset = create(connection)
        begun = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            threads = pool.submit(call_in_threads, dataset, range(THREADS), calls // 2, begun)
            begun.wait()
            forks = [
                fork_caller(dataset, THREADS + FORK_THREADS * number, calls // 2 // FORKS)
                for number in range(FORKS)
            ]
            wrong = threads.result()
        wrong += [f"a forked process ended with {end}" for fork in forks if (end := os.waitpid(fork, 0)[1])]
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as spawned:
            number = THREADS + FORKS * FORK_THREADS
            wrong += spawned.submit(call_once_spawned, dataset, number).result()
    print("".join(f"{line}\n" for line in wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
