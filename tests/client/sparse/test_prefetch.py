from __future__ import annotations

import threading

import pytest

from hsparse.client.sparse.prefetch import prefetched


def test_the_next_result_is_fetched_while_one_is_used() -> None:
    begun = [threading.Event() for _ in range(4)]

    def fetch(number: int) -> int:
        begun[number].set()
        return number

    results = prefetched(fetch, range(4))
    assert not begun[0].is_set(), "nothing is fetched before the first is asked for"
    for number in range(4):
        assert next(results) == number
        if number < 3:
            assert begun[number + 1].wait(60)
        if number < 2:
            assert not begun[number + 2].is_set()
    assert list(results) == []
    assert list(prefetched(fetch, [])) == []


def test_an_error_comes_in_its_place() -> None:
    results = prefetched(lambda number: 6 // number, [3, 2, 0, 1])
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_what_is_done_meanwhile_is_done_once_while_the_first_is_fetched() -> None:
    done = threading.Event()
    calls: list[int] = []

    def fetch(number: int) -> int:
        assert done.wait(60)
        return number

    def meanwhile() -> None:
        calls.append(1)
        done.set()

    assert list(prefetched(fetch, range(3), meanwhile=meanwhile)) == [0, 1, 2]
    assert calls == [1]
