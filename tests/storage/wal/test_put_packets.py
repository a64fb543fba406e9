from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Conflict, HsparseError, PreconditionFailed
from hsparse.storage.filesystem.object_file import Condition
from hsparse.storage.wal.wal_client import decode_replies, encode_put
from hsparse.storage.wal.wal_process import MAX_REPLIES_SIZE, decode_put, encode_replies
from tests.support.characters import CHARACTERS

names = st.text(CHARACTERS)
numbers = st.integers(0, 2**64 - 1)
replies = st.lists(
    st.tuples(numbers, st.one_of(names, st.builds(PreconditionFailed, names), st.builds(Conflict, names)))
)


def plain(result: str | HsparseError) -> object:
    return result if isinstance(result, str) else (type(result), result.message)


@given(numbers, st.sampled_from(Condition), names, names, st.binary())
def test_a_put_comes_back(number: int, condition: Condition, key: str, etag: str, data: bytes) -> None:
    got, put = decode_put(encode_put(number, condition, key, etag, data))
    assert (got, put.condition, put.key, put.etag, bytes(put.data)) == (number, condition, key, etag, data)


@given(replies)
def test_replies_come_back(given: list[tuple[int, str | HsparseError]]) -> None:
    packets = list(encode_replies(given))
    got = [reply for packet in packets for reply in decode_replies(packet)]
    assert [(number, plain(result)) for number, result in got] == [(n, plain(r)) for n, r in given]


def test_many_replies_are_several_packets() -> None:
    given = [(i, "x" * 1000) for i in range(1000)]
    packets = list(encode_replies(given))
    assert all(len(packet) <= MAX_REPLIES_SIZE for packet in packets)
    assert len(packets) == -(-1000 * 1013 // (MAX_REPLIES_SIZE // 1013 * 1013))
    assert [reply for packet in packets for reply in decode_replies(packet)] == given
