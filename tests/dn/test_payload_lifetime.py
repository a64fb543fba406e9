"""What a request wrote is freed when it ends, however it ends, without the cycle collector: see `error_cycles`.

Each call to the store that a request makes is met by each fault in turn; weak references tell what is left.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.compute import MAX_INLINE_BYTES, compute
from hsparse.dn import chunks
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.service import DataService
from hsparse.errors import HsparseError, PreconditionFailed
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.storage.conditional_put import SingleWriter
from hsparse.storage.object_store import ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.s3.s3_store import S3Store
from hsparse.wire.chunk_message import EraseChunks, ReadChunks, WriteChunks
from hsparse.wire.message import Message
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore

DATASET = "d-00000000-00000001-0000-000000-000001"
DIMS = (512,)
WHOLE, PART = Orthogonal.all(DIMS), Orthogonal.box(DIMS, (7,), (300,))
SPARSE = ChunkSpec(DATASET, "H5T_STD_I64LE", DIMS, True, b"", ((), (Filter(1, (4,)),)))
DENSE = ChunkSpec(DATASET, "H5T_STD_I64LE", DIMS, False, b"", ((Filter(1, (4,)),),))
METHODS = ("get", "get_range", "put_if_absent", "put_if_match", "delete_if_match")
FAULTS: dict[str, Callable[[FaultyStore, str], Any]] = {
    "lost": lambda store, method: store.fail_before(method),
    "lost reply": lambda store, method: store.fail_after(method),
    "refused": lambda store, method: store.fail_before(method, error=PreconditionFailed("changed.")),
    "refused again and again": lambda store, method: store.fail_before(
        method, times=200, error=PreconditionFailed("changed.")
    ),
    "corrupt": lambda store, method: store.truncate(keep=20),
    "abandoned": lambda store, method: store.hang(method),
}


def of_chunk(spec: ChunkSpec, selection: Orthogonal) -> tuple[ChunkSelection, ...]:
    return (ChunkSelection((3,), selection, selection.is_all),)


def written(spec: ChunkSpec, selection: Orthogonal) -> WriteChunks:
    return WriteChunks(spec, of_chunk(spec, selection), (np.arange(selection.size, dtype="<i8"),))


REQUESTS: dict[str, Callable[[ChunkSpec], Message[Any]]] = {
    "write a chunk": lambda spec: written(spec, WHOLE),
    "write a part": lambda spec: written(spec, PART),
    "read": lambda spec: ReadChunks(spec, of_chunk(spec, WHOLE)),
    "erase": lambda spec: EraseChunks(spec, of_chunk(spec, PART)),
}


class LastingStore(FaultyStore):
    """A store that outlives its nodes."""

    async def close(self) -> None:
        """Leave the store open."""


@pytest.fixture(params=["memory", "posix", "write-ahead log", "single writer", "s3"])
async def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FaultyStore]:
    """Each kind of store, behind faults."""
    inner: ObjectStore
    match request.param:
        case "memory":
            inner = MemoryStore()
        case "single writer":
            inner = SingleWriter(MemoryStore())
        case "s3":
            moto = request.getfixturevalue("moto_endpoint")
            name = request.node.name.replace("[", "-").rstrip("]").lower().replace(" ", "-")
            bucket = f"lifetime-{name}"[:60]
            keys: dict[str, Any] = {"access_key": "a", "secret_key": "b"}
            inner = await S3Store(bucket, endpoint=moto, region="us-east-1", **keys).open()
            await inner._client.create_bucket(Bucket=bucket)
        case kind:
            # Its next get is made by the thread of its last put, which has let go of that by then.
            inner = PosixStore(tmp_path, fsync=False, wal=kind == "write-ahead log", workers=1)
    yield LastingStore(inner)
    await inner.close()


class Payloads:
    """Weak references to the values of messages and answers, and to each chunk that is decoded or encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._found: list[weakref.ref[Any]] = []
        plain = chunks.ChunkCodec
        note = self.note

        class NotingCodec(plain):  # type: ignore[misc, valid-type]
            def decode(self, data: bytes) -> Any:
                return note(super().decode(data))

            def encode(self, value: Any) -> Any:
                return super().encode(note(value))

        monkeypatch.setattr(chunks, "ChunkCodec", NotingCodec)

    def note(self, value: Any) -> Any:
        """Remember a value weakly, and return it."""
        with suppress(TypeError):  # what has no weak references has an array that does
            self._found.append(weakref.ref(getattr(value, "values", value)))
        return value

    @property
    def alive(self) -> int:
        """How many are still in memory, without a collection."""
        return sum(one() is not None for one in self._found)

    def forget(self) -> None:
        """Take no more note of those that there were."""
        self._found.clear()


async def attempt(
    node: DataService, message: Message[Any], payloads: Payloads, met: Awaitable[Any] | None
) -> None:
    """Send a message; give it up when the fault is `met`, if that is given."""
    for values in getattr(message, "values", ()):
        payloads.note(values)
    sending = asyncio.create_task(node.send(message))
    if met is not None:
        await asyncio.wait({sending, asyncio.ensure_future(met)}, return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
    try:
        with suppress(HsparseError, asyncio.CancelledError):
            await sending
    finally:
        del sending
    await asyncio.sleep(0)  # the event loop has the error until its next step


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("spec", [SPARSE, DENSE], ids=["sparse", "dense"])
async def test_nothing_outlives_its_request(
    name: str, spec: ChunkSpec, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "erase" and not spec.sparse:
        return
    payloads = Payloads(monkeypatch)
    left = []
    gc.disable()
    try:
        for method in METHODS:
            for fault, add in FAULTS.items():
                # A cache that keeps nothing, and a chunk that another node has written.
                other = DataService(faulty, SystemClock(), DataSettings(cache_size=1))
                await attempt(other, written(spec, WHOLE), payloads, None)
                await other.close()
                node = DataService(faulty, SystemClock(), DataSettings(cache_size=1))
                line = add(faulty, method)
                met = line.entered.wait() if fault == "abandoned" else None
                await attempt(node, REQUESTS[name](spec), payloads, met)
                faulty.clear()
                await asyncio.gather(*(entry.drain() for entry in node._cache))
                # The cache looks what is left, and the thread for small work lets go of its last work.
                await node.send(ReadChunks(spec, (ChunkSelection((8,), WHOLE),)))
                await node.close()
                await compute(MAX_INLINE_BYTES + 1, int)
                if payloads.alive:
                    left.append((method, fault, payloads.alive))
                    payloads.forget()
    finally:
        gc.enable()
    assert not left, left
