from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import ManualClock, SystemClock
from hsparse.errors import BadRequest
from hsparse.sn.auth.api_key import ApiKey, Role, id_of, is_api_key, new_key, written_time

NAMES = st.text("abcXYZ019._-@", min_size=1, max_size=11).filter(
    lambda name: name not in ("default", "anonymous", ".", "..")
)
TIMES = st.integers(0, 4_000_000_000)
KEYS = st.builds(
    ApiKey,
    st.text("0123456789abcdef", min_size=12, max_size=12),
    st.text("0123456789abcdef", min_size=64, max_size=64),
    NAMES,
    st.sampled_from(Role),
    st.lists(NAMES, max_size=3).map(tuple),
    TIMES,
    st.none() | TIMES,
    NAMES,
)


@given(KEYS)
def test_a_line_reads_back_as_its_key(key: ApiKey) -> None:
    assert ApiKey.of_line(key.line) == key


def test_a_new_key_is_not_in_what_is_kept_of_it() -> None:
    text, key = new_key(SystemClock(), "laptop", "ann", Role.ACCOUNT, (), None)
    assert is_api_key(text)
    assert id_of(text) == key.id
    assert key.matches(text)
    secret = text.rpartition("_")[2]
    assert secret not in key.line
    assert secret not in repr(key)
    assert key.digest not in repr(key)
    assert new_key(SystemClock(), "laptop", "ann", Role.ACCOUNT, (), None)[0] != text


def test_only_the_whole_text_matches() -> None:
    text, key = new_key(ManualClock(), "laptop", "ann", Role.USER, (), None)
    for other in (text[:-1], text + "0", text.upper(), text[:-1] + ("0" if text[-1] != "0" else "1"), ""):
        assert not key.matches(other)
        assert not is_api_key(other) or other[-1] != text[-1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a:b", "has 8 fields"),
        ("{id}:{digest}:ann:root::20260101T000000Z:never:x", "role of key x"),
        ("{id}:secret:ann:user::20260101T000000Z:never:x", "digest 64"),
        ("secret:{digest}:ann:user::20260101T000000Z:never:x", "id has 12"),
        ("{id}:{digest}:a/b:user::20260101T000000Z:never:x", "user's name"),
        ("{id}:{digest}:ann:user:a b:20260101T000000Z:never:x", "group's name"),
        ("{id}:{digest}:ann:user::never:never:x", "no time of creation"),
        ("{id}:{digest}:ann:user::20260101T000000Z:tomorrow:x", "'tomorrow' is not a time"),
        ("{id}:{digest}:ann:user::20260101T000000Z:never:a b", "key's name"),
        ("{id}:{digest}:ann:user::20260101T000000Z:never:{id}", "key's name"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_without_its_digest(line: str, message: str) -> None:
    digest = "ab" * 32
    with pytest.raises(BadRequest, match=message) as caught:
        ApiKey.of_line(line.format(id="0123456789ab", digest=digest))
    assert digest not in caught.value.message
    assert "secret" not in caught.value.message


def test_times_are_utc() -> None:
    assert written_time(0) == "19700101T000000Z"
    assert written_time(None) == "never"
