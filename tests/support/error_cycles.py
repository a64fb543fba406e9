"""Errors in a cycle with their own tracebacks: they keep what their frames hold until the collector runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import hsparse

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(hsparse.__file__).parent)
IN_TESTS = (str(ROOT / "tests"), str(ROOT / "hsparse" / "testing"))
"""Frames of tests: `pytest.raises` and scripts of faults keep errors on purpose."""


@contextmanager
def no_cycles_of_errors() -> Iterator[None]:
    """Fail if the context leaves frames of the package in a cycle in which no frame of a test is.

    What was there before is frozen: the context costs no more than what it makes.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        left = [_named(cycle) for cycle in cycles_among(list(gc.garbage)) if _is_kept_by_the_package(cycle)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left, "errors in cycles with their frames:\n" + "\n".join(left)


def cycles_among(objects: list[Any]) -> list[list[Any]]:
    """Return the strongly connected components of more than one object (Tarjan's algorithm, without recursion)."""
    known = {id(one): one for one in objects}
    referents = {name: [id(to) for to in gc.get_referents(one)] for name, one in known.items()}
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    found: list[list[Any]] = []
    for root in known:
        walk = [] if root in index else [(root, iter(referents[root]))]
        if walk:
            _enter(root, index, low, path, on_path)
        while walk:
            node, following = walk[-1]
            for to in following:
                if to in known and to not in index:
                    _enter(to, index, low, path, on_path)
                    walk.append((to, iter(referents[to])))
                    break
                if to in on_path:
                    low[node] = min(low[node], index[to])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
                if low[node] == index[node]:
                    component = [path.pop()]
                    while component[-1] != node:
                        component.append(path.pop())
                    on_path.difference_update(component)
                    if len(component) > 1:
                        found.append([known[one] for one in component])
    return found


def _enter(node: int, index: dict[int, int], low: dict[int, int], path: list[int], on_path: set[int]) -> None:
    index[node] = low[node] = len(index)
    path.append(node)
    on_path.add(node)


def _frames(cycle: list[Any]) -> list[FrameType]:
    return [one for one in cycle if type(one) is FrameType]


def _is_kept_by_the_package(cycle: list[Any]) -> bool:
    files = [frame.f_code.co_filename for frame in _frames(cycle)]
    return any(file.startswith(PACKAGE) for file in files) and not any(
        file.startswith(IN_TESTS) for file in files
    )


def _named(cycle: list[Any]) -> str:
    errors = sorted({type(one).__name__ for one in cycle if isinstance(one, BaseException)})
    places = sorted({f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in _frames(cycle)})
    return f"{', '.join(errors)} in {', '.join(places)}"
