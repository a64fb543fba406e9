"""JSON made piece by piece is the JSON that would have been made at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.http.response import Encoded, encode_json
from hsparse.sn.records import streamed_records
from hsparse.sn.records.crawl import Batch, Pace
from hsparse.sn.records.streamed_records import ENCODED_AT_ONCE, ENCODED_BYTES, wrap_items
from hsparse.wire.message import Record
from tests.support.characters import CHARACTERS

TEXT = st.text(CHARACTERS, max_size=5)
VALUES = st.dictionaries(
    TEXT, st.none() | st.booleans() | st.integers(0, 9) | st.floats(0, 1) | TEXT, max_size=4
)


async def generated(parts: list[bytes]) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part


@given(TEXT, VALUES, VALUES)
async def test_members_in_an_object(name: str, inner: dict[str, object], around: dict[str, object]) -> None:
    around.pop(name, None)
    parts = [encode_json(key) + b":" + encode_json(value) for key, value in inner.items()]
    found = b"".join([part async for part in wrap_items(name, generated(parts), around)])
    assert json.loads(found) == {name: inner, **around}


@given(st.lists(VALUES, max_size=4), VALUES)
async def test_elements_in_a_list(inner: list[dict[str, object]], around: dict[str, object]) -> None:
    around.pop("x", None)
    parts = [encode_json(value) for value in inner]
    found = b"".join([part async for part in wrap_items("x", generated(parts), around, b"[]")])
    assert json.loads(found) == {"x": inner, **around}


class OneBatch:
    """Records that are there at once."""

    def __init__(self, names: list[str]) -> None:
        self.pace = Pace()
        self._names = names

    async def batches(self) -> AsyncGenerator[Batch, None]:
        yield [(name, {"id": name}) for name in self._names]


@pytest.mark.parametrize(("count", "nbytes"), [(3 * ENCODED_AT_ONCE, 1), (3, ENCODED_BYTES)])
async def test_other_requests_run_while_records_are_encoded(count: int, nbytes: int) -> None:
    names = list(map(str, range(count)))
    turns: list[int] = []
    done = 0

    async def others() -> None:
        while True:
            turns.append(done)
            await asyncio.sleep(0)

    def to_json(name: str, record: Record) -> Encoded:
        nonlocal done
        done += 1
        return b"1" * nbytes

    async def current(record: Record) -> Record:
        return record

    running = asyncio.create_task(others())
    encoded = streamed_records._encoded_records(OneBatch(names), to_json, current)
    parts = [part async for part in wrap_items("x", encoded, {})]
    running.cancel()
    assert b"".join(parts) == b'{"x":{%b}}' % b",".join(b'"%d":' % n + b"1" * nbytes for n in range(count))
    assert set(turns) >= {count // 3, 2 * count // 3, count}
