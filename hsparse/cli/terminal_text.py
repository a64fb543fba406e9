"""Text of others, such as names in a file, for a terminal: nothing in it steers the terminal or hides other text."""

from __future__ import annotations

from typing import TextIO


def terminal_text(text: str, file: TextIO) -> str:
    """Return text as it is written to `file`: for a terminal with escapes for all that does not print.

    Ends of lines stay. What is written to a file or a program is as it was.
    """
    if not file.isatty():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
