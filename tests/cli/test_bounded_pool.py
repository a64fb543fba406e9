from __future__ import annotations

import threading

import pytest

from hsparse.cli.bounded_pool import BoundedPool


def test_everything_is_done_within_the_memory() -> None:
    done: list[int] = []
    lock = threading.Lock()
    held = most = 0

    def work(number: int, nbytes: int) -> None:
        nonlocal held, most
        with lock:
            held += nbytes
            most = max(most, held)
        with lock:
            held -= nbytes
            done.append(number)

    with BoundedPool(4, memory=100) as uploads:
        for number in range(200):
            nbytes = 10 + number % 50
            uploads.submit(nbytes, lambda number=number, nbytes=nbytes: work(number, nbytes))  # type: ignore[misc]
        uploads.finish()
    assert sorted(done) == list(range(200))
    assert most <= 100


def test_work_that_holds_more_than_there_is_runs_alone() -> None:
    running: set[int] = set()
    alone: list[bool] = []

    def work(number: int) -> None:
        running.add(number)
        alone.append(running == {number})
        running.remove(number)

    with BoundedPool(4, memory=100) as uploads:
        for number in range(20):
            uploads.submit(1000, lambda number=number: work(number))  # type: ignore[misc]
        uploads.finish()
    assert alone == [True] * 20


def test_the_first_failure_stops_what_has_not_begun() -> None:
    begun: list[int] = []
    last = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 3:
            last.set()
            raise ValueError("the third")

    def run() -> None:
        with BoundedPool(1) as uploads:
            for number in range(1000):
                uploads.submit(1, lambda number=number: work(number))  # type: ignore[misc]
            uploads.finish()

    with pytest.raises(ValueError, match="the third"):
        run()
    assert begun == [0, 1, 2, 3]


def test_the_first_failure_ends_what_waits() -> None:
    begun, stopped = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        begun.set()
        ended.append(stopped.wait())

    def run() -> None:
        with BoundedPool(1, stop=stopped.set) as uploads:
            uploads.submit(1, work)
            begun.wait()
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        run()
    assert ended == [True]


def test_results_come_in_order_and_only_some_ahead() -> None:
    taken: list[int] = []

    def items() -> object:
        for number in range(100):
            taken.append(number)
            yield number

    with BoundedPool(3) as uploads:
        for place, result in enumerate(uploads.ahead(items(), lambda number: number * 2)):  # type: ignore[arg-type]
            assert result == place * 2
            assert len(taken) <= place + 4
