"""Bands of matrices that were made lately: values, indices and pointers of one are wanted one after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from weakref import WeakSet

from hsparse.format.hdf5.made_band import MadeBand
from hsparse.format.hdf5.matrix_bands import MatrixBands
from hsparse.sn.files.turns import Turns

MOST_HELD = 64 * 1024 * 1024
"""Bytes of the bands that are kept, by all files; one that has more is not kept."""
Name = tuple[MatrixBands, int]


class HeldBands:
    """Bands by the matrix they are of, as it was planned, and their number; each is made once at a time."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most = most
        self._held: OrderedDict[Name, MadeBand] = OrderedDict()
        self._size = 0
        self._gone: WeakSet[MatrixBands] = WeakSet()
        self._turns = Turns()

    async def get(self, bands: MatrixBands, band: int, make: Callable[[], Awaitable[MadeBand]]) -> MadeBand:
        """Return a band, made by `make` where it is not kept."""
        name = (bands, band)
        async with self._turns.of(name):
            made = self._held.pop(name, None)
            if made is not None:
                self._size -= made.nbytes
            else:
                made = await make()
            self._keep(name, made)
            return made

    def forget(self, gone: Iterable[MatrixBands]) -> None:
        """Keep no bands of these matrices any more: a band that is kept keeps all of its matrix's chunks."""
        # A reader who is still at it makes more of them.
        self._gone.update(gone)
        for name in [name for name in self._held if name[0] in self._gone]:
            self._size -= self._held.pop(name).nbytes

    def _keep(self, name: Name, made: MadeBand) -> None:
        if name[0] in self._gone or made.nbytes > self._most:
            return
        self._held[name] = made
        self._size += made.nbytes
        while self._size > self._most:
            _, oldest = self._held.popitem(last=False)
            self._size -= oldest.nbytes
