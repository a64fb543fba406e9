"""Sizes of chunks in a file: those of elements of variable length are found by reading, all others are known."""

from __future__ import annotations

import pytest

from hsparse.hdf5.format.plan.file_form import STOCK, STRUCTURED, FileForm
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.virtual_file import sized_chunks
from hsparse.hdf5.virtual_file.domain_state import read_domain_state
from hsparse.hdf5.virtual_file.sized_chunks import SizedChunks, read_planned
from tests.sn.file_domain import INT, TEXT, WORDS, place
from tests.sn.value_client import SETTINGS, value_client

SPARSE = {"layout": {"class": "H5D_STRUCT_CHUNK", "dims": [2, 2], "flags": ["H5D_SPARSE_DATA"]}}


async def test_only_what_is_unknown_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    async def read(*arguments: object) -> memoryview:
        reads.append(arguments[1].dataset)  # type: ignore[attr-defined]
        return await read_planned(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sized_chunks, "read_planned", read)
    async with value_client() as client:
        await place(client, "/numbers", INT, [4], [1, 2, 3, 4])
        words = await place(client, "/words", TEXT, [40], WORDS)
        some = await place(client, "/sparse", INT, [4, 4], None, **SPARSE)
        await client("PUT", f"/datasets/{some}/value", {"points": [[0, 1], [3, 3]], "value": [1, 2]})
        owners, answers = client.service.owners, client.service.answers
        state = await read_domain_state(owners, (await client("GET", "/"))["root"])
        sized = SizedChunks(owners, SETTINGS, answers)
        stock = await sized.of(state, STOCK)
        assert set(reads) == {words}
        assert stock[some].size.tolist() == [16, 16], "all elements of both chunks"
        assert (await sized.of(state, STRUCTURED))[some] is state.chunks[some]
        matrices = await sized.of(state, FileForm(matrices=MatrixEncoding.ANNDATA_CSR))
        assert matrices[some] is state.chunks[some], "made of what is stored"
