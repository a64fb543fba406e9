"""Random elements of any type, as bytes: those of a variable-length type in length-prefixed form."""

from __future__ import annotations

from math import prod

import numpy as np

from hsparse.model.element import PREFIX_SIZE, ArrayOfVlen, Compound, Element, Fixed, VlenSequence


def random_element(element: Element, generator: np.random.Generator, depth: int = 0) -> bytes:
    """Return one element; strings and sequences are short, and shorter the deeper they are."""
    if isinstance(element, Fixed):
        return generator.bytes(element.dtype.itemsize)
    if isinstance(element, Compound):
        return b"".join(random_element(part, generator, depth) for part in element.parts)
    if isinstance(element, ArrayOfVlen):
        count = prod(element.dims)
        return b"".join(random_element(element.base, generator, depth) for _ in range(count))
    count = int(generator.integers(0, max(1, 6 - 2 * depth)))
    if isinstance(element, VlenSequence):
        data = b"".join(random_element(element.base, generator, depth + 1) for _ in range(count))
    else:
        data = generator.integers(97, 123, count, np.uint8).tobytes()
    return len(data).to_bytes(PREFIX_SIZE, "little") + data
