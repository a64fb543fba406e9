"""Bands that are kept: made once, and the oldest forgotten."""

from __future__ import annotations

import asyncio
import gc
import weakref

import numpy as np
import pytest
from scipy import sparse as sp

from hsparse.errors import Corrupt
from hsparse.format.hdf5.made_band import MadeBand
from hsparse.format.hdf5.matrix_bands import MatrixBands
from hsparse.sn.files.held_bands import HeldBands
from tests.format.hdf5.test_made_band import Stored, made, stored_matrix

BANDS, CHUNKS = stored_matrix(sp.coo_array(np.ones((4, 5))), (1, 5), 0)


class Making:
    """Makes bands, and says which."""

    def __init__(self, held: HeldBands) -> None:
        self.held = held
        self.done: list[int] = []

    async def get(self, band: int) -> MadeBand:
        async def make() -> MadeBand:
            await asyncio.sleep(0)
            self.done.append(band)
            return made(BANDS, CHUNKS, band)

        return await self.held.get(BANDS, band, make)


async def test_many_who_want_one_band() -> None:
    making = Making(HeldBands())
    found = await asyncio.gather(*(making.get(2) for _ in range(9)))
    assert making.done == [2]
    assert len({id(one) for one in found}) == 1


async def test_the_oldest_are_forgotten() -> None:
    size = made(BANDS, CHUNKS, 0).nbytes
    making = Making(HeldBands(2 * size))
    for band in (0, 1, 0, 2, 0, 1):
        await making.get(band)
    assert making.done == [0, 1, 2, 1]


async def test_what_is_larger_than_all_that_may_be_kept_is_not_kept() -> None:
    making = Making(HeldBands(made(BANDS, CHUNKS, 0).nbytes - 1))
    for band in (0, 0, 1, 0):
        await making.get(band)
    assert making.done == [0, 0, 1, 0]


async def test_a_matrix_that_is_forgotten() -> None:
    held = HeldBands()

    async def take(bands: MatrixBands, chunks: Stored) -> None:
        async def make() -> MadeBand:
            return made(bands, chunks, 1)

        await held.get(bands, 1, make)

    bands, chunks = stored_matrix(sp.coo_array(np.ones((4, 5))), (1, 5), 0)
    making = Making(held)
    await making.get(0)
    alive = weakref.ref(bands)
    await take(bands, chunks)
    held.forget([bands])
    await take(bands, chunks)  # by a reader who began before
    del bands
    gc.collect()
    assert alive() is None
    await making.get(0)
    assert making.done == [0], "others stay"


async def test_one_that_cannot_be_made() -> None:
    held = HeldBands()

    async def make() -> MadeBand:
        raise Corrupt("no")

    with pytest.raises(Corrupt):
        await held.get(BANDS, 0, make)
    making = Making(held)
    await making.get(0)
    assert making.done == [0]
