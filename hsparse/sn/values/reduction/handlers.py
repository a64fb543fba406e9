"""Handlers of reductions: `/datasets/{id}/reduce`."""

from __future__ import annotations

from aiohttp import web

from hsparse.concurrency.offload import offload
from hsparse.sn.context import Context
from hsparse.sn.http.request import read_json_object
from hsparse.sn.records.dataset import Dataset, until_current
from hsparse.sn.values.media.registry import accepted_medium
from hsparse.sn.values.reduction.dataset_reduction import DatasetReduction
from hsparse.sn.values.reduction.reduce_request import ReduceRequest
from hsparse.sn.values.request_selection import selection_work


async def get_reduce(context: Context) -> web.StreamResponse:
    """`GET /datasets/{id}/reduce`: sums, means and the like of the selected elements, over axes and by groups."""
    return await _reduce(context, ReduceRequest.of(context, {}))


async def post_reduce(context: Context) -> web.StreamResponse:
    """`POST /datasets/{id}/reduce`: the same with what is too long for a URL."""
    return await _reduce(context, ReduceRequest.of(context, await read_json_object(context)))


async def _reduce(context: Context, request: ReduceRequest) -> web.StreamResponse:
    medium = accepted_medium(context.request)

    async def reduce(dataset: Dataset) -> web.StreamResponse:
        work = selection_work({"select": request.select})
        selection = await offload(work, request.resolve, dataset.extent)
        reduction = DatasetReduction(context, dataset, request, selection)
        return await medium.answer_reduced(context, await reduction.run())

    return await until_current(context, reduce)
