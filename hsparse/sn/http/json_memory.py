"""How much memory a JSON body takes once it is parsed: up to twenty times that of its text."""

from __future__ import annotations

import numpy as np

LEAST = 64 * 1024
"""Bytes of a body from which on its value counts."""
BLOCK = 1 << 20
"""Bytes that are looked at at a time, so that what they are compared to takes little memory."""
LIST, DICT, TEXT, ITEM = 64, 208, 64, 36
"""Bytes of a list, a dict, and a text, all without what is in them, and of an item: a number, and its place."""
WIDE = 4
"""Bytes of a character in a text that has one beyond the Basic Multilingual Plane."""


def value_memory(data: bytes | bytearray) -> int:
    """Return about the most bytes of memory that JSON takes when it is parsed."""
    text = len(data) if data.isascii() and b"\\u" not in data else WIDE * len(data)
    lists, dicts, quotes, commas = (_count(data, character) for character in b'[{",')
    return text + LIST * lists + DICT * dicts + TEXT * (quotes // 2) + ITEM * (commas + lists + dicts)


def _count(data: bytes | bytearray, character: int) -> int:
    """Return how often a character is there; numpy, unlike `bytes.count`, lets other threads run."""
    every = np.frombuffer(data, np.uint8)
    return sum(
        int(np.count_nonzero(every[first : first + BLOCK] == character))
        for first in range(0, len(every), BLOCK)
    )
