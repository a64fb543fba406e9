"""Random selections of a dataset, as h5py and h5pyd take them."""

from __future__ import annotations

from typing import Any

import numpy as np

Shape = tuple[int, ...]


def draw_index(rng: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
    """Return a selection of a dataset of a shape, and the shape of what it selects."""
    if rng.random() < 0.1 or not shape:
        return (() if rng.random() < 0.5 else ..., shape)
    if rng.random() < 0.08:
        mask = rng.random(shape) < 0.4
        return mask, (int(mask.sum()),)
    rank = int(rng.integers(1, len(shape) + 1))
    lists, items, selected = 0, [], []
    for length in shape[:rank]:
        item, count = _place(rng, length, may_list=not lists)
        lists += isinstance(item, list)
        items.append(item)
        selected += [] if count is None else [count]
    if lists:  # of h5pyd's lists: see LISTS in the known differences
        items = [item % n if isinstance(item, int) else item for item, n in zip(items, shape, strict=False)]
        items += [slice(None)] * (len(shape) - rank)
        return tuple(items), (*selected, *shape[rank:])
    if rank < len(shape) and rng.random() < 0.3:
        items.append(...)
    index = items[0] if len(items) == 1 and rng.random() < 0.5 else tuple(items)
    return index, (*selected, *shape[rank:])


def _place(rng: np.random.Generator, length: int, *, may_list: bool) -> tuple[Any, int | None]:
    kind = rng.random()
    if kind < 0.02:
        return length + 3, None
    if kind < 0.25 and length:
        return int(rng.integers(-length, length)), None
    if kind < 0.4 and may_list and length:
        count = int(rng.integers(1, length + 1))
        chosen = sorted(rng.choice(length, count, replace=False).tolist())
        return chosen, count
    if kind < 0.6:
        return slice(None), length
    start, stop = sorted(rng.integers(0, length + 1, 2).tolist())
    step = int(rng.integers(1, 4)) if kind < 0.8 else None
    return slice(start, stop, step), len(range(start, stop, step or 1))
