"""The characters of text made up in tests: all that UTF-8 encodes.

`st.text()` has the same ones, but finds them by encoding each of a million: three seconds of each process that has not
their table in `.hypothesis`.
"""

from __future__ import annotations

from hypothesis import strategies as st


def characters_but(excluded: str) -> st.SearchStrategy[str]:
    """Return single characters but those of `excluded`."""
    return st.characters(exclude_categories=["Cs"], exclude_characters=excluded)


CHARACTERS = characters_but("")
