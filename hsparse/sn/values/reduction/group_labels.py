"""The groups of a reduction: labels of an axis, from a dataset of the domain or from the request.

A column of an AnnData's obs is such a dataset or, if it is categorical, a group with the datasets `codes` and
`categories`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.offload import offload
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.reductions.label_groups import LabelGroups, check_labels
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.model.ids import collection_of
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray
from hsparse.sn.context import Context
from hsparse.sn.records.access import FileRights
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import check_member, resolve_path
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.message import Record

CODES, CATEGORIES = "codes", "categories"
GROUPED_BYTES = 32
"""About the bytes that a label takes while its group is looked for: numpy orders all of them."""


async def read_groups(context: Context, by: str | list[Any], length: int) -> LabelGroups:
    """Return the groups that `by` names for an axis of this length.

    `BadRequest` if there is not one label for each index; `NotFound` if there is no such dataset.
    """
    answers = context.service.answers
    if isinstance(by, list):
        check_labels(len(by), length)
        async with answers.hold(len(by) * GROUPED_BYTES):
            return await offload(len(by), LabelGroups.of_list, by)
    record = await _record(context, by)
    if collection_of(record["id"]) == "groups":
        return await _read_categories(context, record, length)
    dataset = _labels(context, record, length)
    async with answers.hold(_needed(context, dataset)):
        values = await _read(context, dataset)
        if isinstance(values, list):
            return await offload(len(values), LabelGroups.of_list, values)
        return await offload(len(values), LabelGroups.of_numbers, values)


async def _read_categories(context: Context, record: Record, length: int) -> LabelGroups:
    links = record.get("links") or {}
    ids = [links.get(name, {}).get("id") for name in (CODES, CATEGORIES)]
    if None in ids:
        raise BadRequest(
            f"{record['id']} is a group without the datasets {CODES} and {CATEGORIES}: by is a dataset, or a "
            "categorical column of AnnData."
        )
    codes_record, categories_record = [(await context.service.owners.record(id)) for id in ids]
    codes = _labels(context, codes_record, length)
    categories = _labels(context, categories_record, None)
    async with context.service.answers.hold(_needed(context, codes) + _needed(context, categories)):
        read, labels = await _read(context, codes), await _read(context, categories)
        return await offload(len(read), LabelGroups.of_categories, read, labels, codes.id)


async def _record(context: Context, by: str) -> Record:
    if by.startswith("d-"):
        id = check_member(by, context.domain, "datasets")
    else:
        place = await resolve_path(context, context.domain, by)
        id = check_member(place.id, context.domain)
    return await context.service.owners.record(id)


def _labels(context: Context, record: Record, length: int | None) -> Dataset:
    """Return a 1-D dataset of labels, one for each index of an axis of this length."""
    if collection_of(record["id"]) != "datasets":
        raise BadRequest(f"{record['id']} is no dataset: it has no labels.")
    dataset = Dataset.of(record, FileRights.of(context))
    if len(dataset.extent) != 1:
        raise BadRequest(f"{dataset.id} has {len(dataset.extent)} dimensions; labels have one.")
    if length is not None:
        check_labels(dataset.extent[0], length)
    return dataset


def _needed(context: Context, dataset: Dataset) -> int:
    """Return about how many bytes it takes to read a dataset of labels, and to group them."""
    count, limit = dataset.extent[0], context.service.settings.max_request_size
    if dataset.arrays.least(count) > limit:
        raise _too_large(dataset, limit)
    return min(limit, dataset.arrays.expected(count)) + count * GROUPED_BYTES


async def _read(context: Context, dataset: Dataset) -> NDArray[Any] | list[Any]:
    """Return the values of a 1-D dataset: numbers as an array, text as a list."""
    limit = context.service.settings.max_request_size
    chunks = ChunkFanout(context.service.owners, dataset)
    values = await chunks.read_within(Orthogonal.all(dataset.extent), (), limit)
    if isinstance(values, int):
        raise _too_large(dataset, limit)
    if not isinstance(values, VlenArray) and values.dtype.kind in "biuf":
        return np.asarray(values.view(dataset.dtype))
    return await offload(values.size, _listed, dataset, values)


def _listed(dataset: Dataset, values: Values) -> list[Any]:
    """Return labels that are no numbers."""
    listed, _ = dataset.arrays.to_json(values)
    listed = listed.tolist() if isinstance(listed, np.ndarray) else listed
    if not all(isinstance(label, str | int | None) for label in listed):
        raise BadRequest(f"The elements of {dataset.id} are no labels: these are numbers or text.")
    return list(listed)


def _too_large(dataset: Dataset, limit: int) -> TooLarge:
    return TooLarge(f"The labels in {dataset.id} have more than {limit} bytes (max_request_size).")
