"""Names and passwords in the Basic scheme."""

from __future__ import annotations

import base64

import pytest

from hsparse.errors import Unauthenticated
from hsparse.sn.auth.basic_credential import basic_credential


@pytest.mark.parametrize(
    "pair", [("ada", "secret"), ("ada", "a:b"), ("ada", ""), ("ada", "gehe\N{DEGREE SIGN}m")]
)
def test_there_and_back(pair: tuple[str, str]) -> None:
    assert basic_credential(base64.b64encode(":".join(pair).encode()).decode()) == pair


@pytest.mark.parametrize(
    "text", ["e!", "****", base64.b64encode(b"\xff:x").decode(), base64.b64encode(b"ada").decode()]
)
def test_what_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(Unauthenticated, match="RFC 7617") as raised:
        basic_credential(text)
    assert text not in raised.value.message
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
