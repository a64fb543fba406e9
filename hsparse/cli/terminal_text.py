"""Untrusted text for a terminal, such as names in a file: it can neither control the terminal nor hide other text."""

from __future__ import annotations

from typing import TextIO


def terminal_text(text: str, file: TextIO) -> str:
    """Return text for `file`: if that is a terminal, with escapes for all characters that are not printable.

    Line ends stay. Text for a file or a program is unchanged.
    """
    if not file.isatty():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
