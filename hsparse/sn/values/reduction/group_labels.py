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
from hsparse.sn.records.access import FileRights
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.object_path import check_member, resolve_path
from hsparse.sn.request import Request
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.message import Record

CODES, CATEGORIES = "codes", "categories"
GROUPED_BYTES = 32
"""About the bytes that a label takes while its group is looked for: numpy orders all of them."""


async def read_groups(request: Request, by: str | list[Any], length: int) -> LabelGroups:
    """Return the groups that `by` names for an axis of this length.

    `BadRequest` if there is not one label for each index; `NotFound` if there is no such dataset.
    """
    answers = request.service.answers
    if isinstance(by, list):
        check_labels(len(by), length)
        async with answers.hold(len(by) * GROUPED_BYTES):
            return await offload(len(by), LabelGroups.of_list, by)
    record = await _record(request, by)
    if collection_of(record["id"]) == "groups":
        return await _read_categories(request, record, length)
    dataset = _labels(request, record, length)
    async with answers.hold(_needed(request, dataset)):
        values = await _read(request, dataset)
        if isinstance(values, list):
            return await offload(len(values), LabelGroups.of_list, values)
        return await offload(len(values), LabelGroups.of_numbers, values)


async def _read_categories(request: Request, record: Record, length: int) -> LabelGroups:
    links = record.get("links") or {}
    ids = [links.get(name, {}).get("id") for name in (CODES, CATEGORIES)]
    if None in ids:
        raise BadRequest(
            f"{record['id']} is a group without the datasets {CODES} and {CATEGORIES}: by is a dataset, or a "
            "categorical column of AnnData."
        )
    codes_record, categories_record = [(await request.service.owners.record(id)) for id in ids]
    codes = _labels(request, codes_record, length)
    categories = _labels(request, categories_record, None)
    async with request.service.answers.hold(_needed(request, codes) + _needed(request, categories)):
        read, labels = await _read(request, codes), await _read(request, categories)
        return await offload(len(read), LabelGroups.of_categories, read, labels, codes.id)


async def _record(request: Request, by: str) -> Record:
    if by.startswith("d-"):
        id = check_member(by, request.domain, "datasets")
    else:
        place = await resolve_path(request, request.domain, by)
        id = check_member(place.id, request.domain)
    return await request.service.owners.record(id)


def _labels(request: Request, record: Record, length: int | None) -> Dataset:
    """Return a 1-D dataset of labels, one for each index of an axis of this length."""
    if collection_of(record["id"]) != "datasets":
        raise BadRequest(f"{record['id']} is no dataset: it has no labels.")
    dataset = Dataset.of(record, FileRights.of(request))
    if len(dataset.extent) != 1:
        raise BadRequest(f"{dataset.id} has {len(dataset.extent)} dimensions; labels have one.")
    if length is not None:
        check_labels(dataset.extent[0], length)
    return dataset


def _needed(request: Request, dataset: Dataset) -> int:
    """Return about how many bytes it takes to read a dataset of labels, and to group them."""
    count, limit = dataset.extent[0], request.service.settings.max_request_size
    if dataset.arrays.least(count) > limit:
        raise _too_large(dataset, limit)
    return min(limit, dataset.arrays.expected(count)) + count * GROUPED_BYTES


async def _read(request: Request, dataset: Dataset) -> NDArray[Any] | list[Any]:
    """Return the values of a 1-D dataset: numbers as an array, text as a list."""
    limit = request.service.settings.max_request_size
    chunks = ChunkFanout(request.service.owners, dataset)
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
