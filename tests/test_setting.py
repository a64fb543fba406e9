"""Sizes with units, and variables that no setting has."""

from __future__ import annotations

import pytest

from hsparse.setting import format_size, misspelling, parse_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("1000000", 10**6),
        ("1_000_000", 10**6),
        ("7B", 7),
        ("512MiB", 512 * 2**20),
        ("512mib", 512 * 2**20),
        (" 1 GB ", 10**9),
        ("1kB", 1000),
        ("2KiB", 2048),
        ("1.5GiB", 3 * 2**29),
        ("3TB", 3 * 10**12),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes
    assert parse_size(format_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no size"),
        ("-1", "no size"),
        ("1e9", "'e' is no unit|no size"),
        ("1G", "'G' is no unit of size; write kB, MB, GB, TB, or KiB, MiB, GiB, TiB"),
        ("MiB", "no size"),
        ("1__0", "no size"),
        ("1.5", "not a whole number of bytes"),
        ("٣", "no size"),
        ("9" * 19, "at most 18 digits"),
    ],
)
def test_what_is_no_size(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_size(text)


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0"), (1, "1"), (1024, "1KiB"), (128 * 2**20, "128MiB"), (10**9, "1000000000")]
)
def test_sizes_are_printed_whole(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


def test_misspellings() -> None:
    known = ["HSPARSE_CACHE_SIZE", "HSPARSE_ENDPOINT", "HSPARSE_PORT"]
    assert misspelling(["PATH", "HSPARSE_PORT", "hsparse_port", "HSPARSER"], known) is None
    assert misspelling(["HSPARSE_CACHESIZE"], known) == (
        "There is no variable HSPARSE_CACHESIZE: do you mean HSPARSE_CACHE_SIZE?"
    )
    assert misspelling(["HSPARSE_XYZZY_QQQQQQQQ"], known) == (
        "There is no variable HSPARSE_XYZZY_QQQQQQQQ: no setting has a similar name; unset it."
    )
