"""Runs a command for each of many items; the error of a failed item is printed, and the remaining items still run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from threading import Event
from typing import TypeVar

from hsparse.cli.bounded_pool import MAX_BYTES_IN_FLIGHT, BoundedPool
from hsparse.cli.progress import ProgressForm, print_message
from hsparse.client.errors import Unreachable
from hsparse.errors import HsparseError, Unauthenticated

FAILED, INTERRUPTED = 2, 130
AT_ONCE = 16
"""The maximum number of small items that run at the same time."""
SMALL_ITEM_BYTES = MAX_BYTES_IN_FLIGHT // AT_ONCE
"""The memory that a small item is assumed to use, in bytes."""
Item = TypeVar("Item")


def _none_is_small(item: object) -> bool:
    return False


def run_each(
    items: Iterable[Item],
    run: Callable[[Item], int],
    form: ProgressForm,
    done: str,
    *,
    is_small: Callable[[Item], bool] = _none_is_small,
    stop: Callable[[], None] = lambda: None,
) -> int:
    """Call `run` for each item; return 2 if an item failed, or else the highest status. Status 130 ends the loop.

    Up to `AT_ONCE` small items run at a time, in threads; a large item runs alone, after all items before it. `done` is
    the text after the count in the final message. The errors `Unauthenticated` and `Unreachable` concern all items:
    they call `stop` and are raised.
    """
    statuses: list[int] = []
    stopped = Event()

    def end() -> None:
        stopped.set()
        stop()

    def attempt(item: Item) -> None:
        try:
            status = run(item)
        except (Unauthenticated, Unreachable):
            raise
        except HsparseError as error:
            if not stopped.is_set():
                print_message(form, f"{item}: {error.message}", sys.stderr)
            status = FAILED
        statuses.append(status)

    with BoundedPool(AT_ONCE, stop=end) as pool:
        for item in items:
            if is_small(item):
                pool.submit(SMALL_ITEM_BYTES, partial(attempt, item))
                continue
            pool.finish()
            attempt(item)
            if statuses[-1] == INTERRUPTED:
                return INTERRUPTED
        pool.finish()
    whole = sum(status != FAILED for status in statuses)
    print_message(form, f"{whole} of {len(statuses)} {done}")
    return FAILED if FAILED in statuses else max(statuses, default=0)
