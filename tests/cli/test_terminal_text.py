"""Text of others on a terminal."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from hsparse.cli.terminal_text import terminal_text


class Terminal(io.StringIO):
    """A file that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_steers_a_terminal_is_escaped() -> None:
    text = "a\x1b]0;title\x07\x9b2J \u202efdp.exe\n/caf\u00e9 \ud800"
    assert terminal_text(text, Terminal()) == (
        "a\\x1b]0;title\\x07\\x9b2J \\u202efdp.exe\n/caf\u00e9 \\ud800"
    )
    assert terminal_text(text, io.StringIO()) == text


@given(st.text(st.characters()))
def test_all_on_a_terminal_prints(text: str) -> None:
    shown = terminal_text(text, Terminal())
    assert shown.replace("\n", "").isprintable()
    assert shown.count("\n") == text.count("\n")
