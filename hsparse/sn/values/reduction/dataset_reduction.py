"""A reduction of a dataset: owners reduce their chunks, and what they send is combined here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_statistics import SUMMED
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks
from hsparse.format.reductions.finished import add_missing, finished, needed_columns
from hsparse.format.reductions.label_groups import LabelGroups
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Codes, Reduction, check_numbers, parse_axes
from hsparse.format.selections import axis as ax
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import MANY_WHOLE, ChunkFanout
from hsparse.sn.values.reduction.described_chunks import DescribedChunks
from hsparse.sn.values.reduction.group_labels import read_groups
from hsparse.sn.values.reduction.reduce_request import FILL, ReduceRequest

Array = NDArray[Any]
MAX_GENERATED = 1 << 14
CODE_BYTES = 12
"""About the bytes of the code of a position's group, with those of what was not selected, while it is used."""
STATE_BYTES = 64
"""About the most bytes of one place of a result while it is computed."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of a reduction: an array of `reduction.result_shape` for each operation, by its name.

    `labels` are those of the groups, None without groups; `coords` has the indices of the others of its dimensions in
    the dataset.
    """

    dataset: Dataset
    reduction: Reduction
    values: dict[str, Array]
    labels: list[Any] | None
    coords: dict[int, NDArray[np.uint64]]


class DatasetReduction:
    """One reduction of a `selection` of a dataset in its current extent."""

    def __init__(
        self, request: Request, dataset: Dataset, asked: ReduceRequest, selection: Orthogonal
    ) -> None:
        self._request = request
        self._dataset = dataset
        self._asked = asked
        self._selection = selection
        if dataset.arrays.is_exact:
            check_numbers(dataset.dtype, asked.field, asked.operations)
        elif asked.field or asked.operations != ("count",):
            raise BadRequest(f"Elements of {dataset.id} have no fixed size: they can be counted only.")
        if dataset.spec.sparse and asked.undefined is None:
            raise BadRequest(
                "Say what becomes of undefined elements: undefined=skip leaves them out, undefined=fill takes them as "
                "the fill value."
            )
        self._fills = not dataset.spec.sparse or asked.undefined == FILL

    async def run(self) -> Reduced:
        """Return the result; `TooLarge` if it has more places than the limits allow."""
        axes = parse_axes(self._asked.axis, len(self._dataset.extent))
        groups = await self._groups(axes)
        reduction = self._reduction(axes, groups)
        limit = self._request.service.settings.max_request_size
        # Without a place, too, a result has its lists and the indices of its other dimensions.
        nbytes = prod(max(1, length) for length in reduction.result_shape) * STATE_BYTES
        if nbytes > limit:
            raise TooLarge(
                f"The result has the shape {list(reduction.result_shape)}; with {STATE_BYTES} bytes for each place it "
                f"may have {limit} bytes (max_request_size): select less, or reduce more axes."
            )
        codes = None if groups is None else groups.codes
        num_codes = 0 if codes is None else codes.size
        self._check_chunks()
        async with self._request.service.answers.hold(2 * nbytes + num_codes * CODE_BYTES):
            chunks = ChunkFanout(self._request.service.owners, self._dataset)
            state = Partials.empty(reduction.places, self._numbers, reduction.columns)
            described = await self._described(chunks, reduction)
            async for planned in chunks.batches(self._selection):
                rest: Sequence[PlannedChunk] = planned
                if described is not None:
                    rest, part = described.split(planned, reduction)
                    state.merge(part)
                for part in await chunks.reduce(rest, reduction, codes):
                    await offload(part.size, state.merge, part)
            values = await offload(max(reduction.places, num_codes), self._finished, state, reduction, codes)
        labels = None if groups is None else groups.labels
        kept = [dim for dim in reduction.kept if dim != reduction.grouped]
        coords = {dim: ax.indices(self._selection.axes[dim]) for dim in kept}
        return Reduced(self._dataset, reduction, values, labels, coords)

    def _check_chunks(self) -> None:
        """Raise `TooLarge` for a selection of too many chunks whose values are generated: all of them are planned."""
        if self._dataset.spec.arange and count_chunks(self._selection, self._dataset.grid) > MAX_GENERATED:
            raise TooLarge(f"The selection meets more than {MAX_GENERATED} chunks; select less at a time.")

    async def _described(self, chunks: ChunkFanout, reduction: Reduction) -> DescribedChunks | None:
        """Return the statistics of the chunks that the selection meets; None where they do not help.

        That is if a place of the result has not all elements of a chunk, if something else is asked for than they
        have, or if the chunks are so few that the owners may have them in their caches.
        """
        spec, field = self._dataset.spec, self._asked.field
        if reduction.kept or not set(reduction.columns) <= set(SUMMED) or field not in spec.statistic_columns:
            return None
        if count_chunks(self._selection, self._dataset.grid) < MANY_WHOLE:
            return None
        pages = [rows async for rows in chunks.listed(self._selection)]
        rows = ChunkRows.joined(pages, len(spec.dims))
        return DescribedChunks.of(rows, spec.statistic_columns.index(field), self._numbers)

    @property
    def _numbers(self) -> np.dtype[Any]:
        """The type of what is reduced."""
        dtype, field = self._dataset.dtype, self._asked.field
        return dtype[field] if field else dtype

    async def _groups(self, axes: Sequence[int]) -> LabelGroups | None:
        """Return the groups of the selection's positions along the first of the axes, None without groups."""
        if self._asked.by is None:
            return None
        if not axes or self._asked.axis in (None, ""):
            raise BadRequest("Name the axis that by has labels of: the first one in axis.")
        length = self._dataset.extent[axes[0]]
        found = await read_groups(self._request, self._asked.by, length)
        axis = self._selection.axes[axes[0]]
        picked = await offload(axis.size, _picked, found.codes, axis)
        return LabelGroups(picked, found.labels)

    def _reduction(self, axes: Sequence[int], groups: LabelGroups | None) -> Reduction:
        return Reduction(
            self._selection.shape,
            tuple(sorted(axes)),
            needed_columns(self._asked.operations),
            self._asked.field,
            -1 if groups is None else axes[0],
            0 if groups is None else len(groups.labels),
        )

    # --- the result ----------------------------------------------------------------------------------

    def _finished(self, state: Partials, reduction: Reduction, codes: Codes | None) -> dict[str, Array]:
        """Return the result of each operation."""
        fill = self._dataset.fill if self._dataset.arrays.is_exact else np.zeros((), "u1")
        if self._fills:
            add_missing(state, reduction, fill, codes)
        shape, number, ddof = reduction.result_shape, reduction.numbers(fill), self._asked.ddof
        return {name: finished(name, state, number, ddof).reshape(shape) for name in self._asked.operations}


def _picked(codes: Codes, axis: ax.Axis) -> Codes:
    """Return the codes of the positions on an axis, a view where they are contiguous."""
    if isinstance(axis, ax.Span) and axis.contiguous:
        return codes[axis.start : axis.stop]
    return codes[ax.indices(axis).astype(np.intp)]
