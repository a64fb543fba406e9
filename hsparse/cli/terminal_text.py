"""Makes untrusted text, such as names in a file, safe for a terminal: it cannot control the terminal or hide text."""

from __future__ import annotations

from typing import TextIO


def terminal_text(text: str, file: TextIO) -> str:
    """Return the text as it can be written to `file`.

    If `file` is a terminal, all characters that are not printable are escaped, except line ends.
    """
    if not file.isatty():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
