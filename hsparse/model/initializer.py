"""What unwritten elements are instead of the fill value: `["arange", "--start=10", "--step=2"]`, as HSDS has it.

Element i of a dataset of one dimension is then start + i * step; of integers both are integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.model.element import Element, Fixed

Arange = tuple[float, ...]
"""`(start, step)`, or nothing."""
MAX_NUMBER = 2**63


def parse_initializer(value: Any, rank: int, element: Element, *, sparse: bool) -> Arange:
    """Return what creation property `initializer` (None: not given) asks for; `BadRequest` for what is not known."""
    if value is None or value == []:
        return ()
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadRequest(f"The initializer must be a list of strings, not {value!r:.80}.")
    if words[:1] != ["arange"]:
        raise BadRequest(f"The initializer {words[:1]} is not known; there is arange.")
    kind = element.dtype.kind if isinstance(element, Fixed) and element.dtype.names is None else ""
    if rank != 1 or sparse or kind not in ("i", "u", "f"):
        raise BadRequest(
            "The initializer arange is for dense datasets of one dimension, of integers or floats."
        )
    given: dict[str, float] = {"--start": 0.0, "--step": 1.0} if kind == "f" else {"--start": 0, "--step": 1}
    for word in words[1:]:
        name, _, text = word.partition("=")
        if name not in given:
            raise BadRequest(f"The initializer arange takes --start= and --step=, not {word[:40]!r}.")
        given[name] = _number(text, kind)
    return given["--start"], given["--step"]


def initial_values(arange: Arange, first: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the elements from number `first` on, (count,); integers beyond the type wrap around."""
    start, step = arange
    if dtype.kind == "f":
        return (start + np.arange(first, first + count, dtype=np.float64) * step).astype(dtype)
    # modulo 2^64, of which every narrower type keeps the end
    base = np.uint64((int(start) + first * int(step)) % 2**64)
    with np.errstate(over="ignore"):
        values = base + np.arange(count, dtype=np.uint64) * np.uint64(int(step) % 2**64)
    return values.astype(f"{dtype.kind}8").astype(dtype)


def _number(text: str, kind: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise BadRequest(f"{text[:40]!r} in the initializer is no number.") from error
    if kind == "f":
        if not math.isfinite(number):
            raise BadRequest(f"{text[:40]!r} in the initializer is not finite.")
        return number
    if not number.is_integer() or abs(number) >= MAX_NUMBER:
        raise BadRequest(f"{text[:40]!r} in the initializer of integers is no integer below 2^63.")
    return int(text) if text.lstrip("+-").isdigit() else int(number)
