"""The characters that names may have: visible ones and spaces."""

from __future__ import annotations

SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""Spaces other than U+0020 (Unicode's category Zs); file names from macOS and web pages contain them."""
_AS_SPACE = dict.fromkeys(map(ord, SPACES), " ")


def is_printable(text: str) -> bool:
    """Tell whether a text has only printable characters and spaces: no control characters, no lone surrogates.

    >>> is_printable("a\u00a0b"), is_printable("a\tb")
    (True, False)
    """
    return text.isprintable() or text.translate(_AS_SPACE).isprintable()
