"""Handlers of reductions: `/datasets/{id}/reduce`."""

from __future__ import annotations

from aiohttp import web

from hsparse.compute import compute
from hsparse.sn.http.request import read_json_object
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.request import Request
from hsparse.sn.values.media.registry import accepted_medium
from hsparse.sn.values.reduction.dataset_reduction import DatasetReduction, ReduceRequest
from hsparse.sn.values.request_selection import selection_work


async def get_reduce(request: Request) -> web.StreamResponse:
    """`GET /datasets/{id}/reduce`: sums, means and the like of the selected elements, over axes and by groups."""
    return await _reduce(request, ReduceRequest.of(request, {}))


async def post_reduce(request: Request) -> web.StreamResponse:
    """`POST /datasets/{id}/reduce`: the same with what is too long for a URL."""
    return await _reduce(request, ReduceRequest.of(request, await read_json_object(request)))


async def _reduce(request: Request, asked: ReduceRequest) -> web.StreamResponse:
    medium = accepted_medium(request.http)

    async def reduce(dataset: Dataset) -> web.StreamResponse:
        work = selection_work({"select": asked.select})
        selection = await compute(work, asked.resolve, dataset.extent)
        reduction = DatasetReduction(request, dataset, asked, selection)
        return await medium.answer_reduced(request, await reduction.run())

    return await until_current(request, reduce)
