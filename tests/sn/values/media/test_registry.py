"""The registry of media: every medium answers every operation, and a new one is a module and a row."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from hsparse.errors import BadRequest
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.value_arrays import ValueArrays
from hsparse.model.json_values import Values
from hsparse.sn.about import specification
from hsparse.sn.http.request import ARROW_TYPE, BINARY_TYPE, JSON_TYPE
from hsparse.sn.http.stream import respond_stream
from hsparse.sn.policies.compression import TEXTS
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.request import Request
from hsparse.sn.values.append import Append
from hsparse.sn.values.chunk_fanout import DefinedRead
from hsparse.sn.values.handlers import MEDIA
from hsparse.sn.values.media.json import JSON
from hsparse.sn.values.media.medium import STREAM_PAGES, FoundRead, ValueRead
from hsparse.sn.values.request_selection import ReadRequest
from tests.docs_pages import rows
from tests.sn.dataset_kinds import I32, sparse
from tests.sn.value_client import create, defined_count, put, read
from tests.support.rest_client import RestClient, answered

CSV_TYPE = "text/csv"


@pytest.fixture
async def path(client: RestClient) -> str:
    """A sparse dataset of 4 x 5 with three defined elements."""
    path = await create(client, [4, 5], I32, layout=sparse(2, 2))
    await put(client, path, {"points": [[0, 1], [1, 4], [3, 0]], "value": [10, 20, 30]})
    return path


FORMS = {
    JSON_TYPE: dict.fromkeys(("values", "defined", "places", "found"), JSON_TYPE),
    BINARY_TYPE: dict.fromkeys(("values", "defined", "places", "found"), BINARY_TYPE),
    ARROW_TYPE: {"values": JSON_TYPE, "defined": ARROW_TYPE, "places": JSON_TYPE, "found": JSON_TYPE},
}
"""The media types of answers, by the medium that is accepted and the operation."""
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "values": ("value", {}),
    "defined": ("value", {"sparse": 1}),
    "places": ("defined", {}),
    "found": ("value", {"query": "_ > 15"}),
}


def test_every_medium_is_listed_by_its_name() -> None:
    assert {name: medium.name for name, medium in MEDIA.items()} == {name: name for name in FORMS}
    assert {row[0].strip("`") for row in rows("docs/rest.md", "medium")} >= set(MEDIA)
    read = specification()["paths"]["/datasets/{id}/value"]["get"]
    assert set(read["responses"]["200"]["content"]) == set(MEDIA)
    assert {name for name in MEDIA if name.startswith("text/") or name.endswith("json")} <= TEXTS


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", FORMS)
async def test_an_operation_is_answered_in_the_medium_or_in_json(
    client: RestClient, path: str, name: str, operation: str
) -> None:
    end, params = OPERATIONS[operation]
    reply = await answered(client("GET", f"{path}/{end}", accept=name, **params))
    form = FORMS[name][operation]
    assert reply.headers["Content-Type"].partition(";")[0] == form
    if form == JSON_TYPE:
        assert reply.body == (await client("GET", f"{path}/{end}", accept=JSON_TYPE, **params)).body


@pytest.mark.parametrize("name", [JSON_TYPE, ARROW_TYPE])
async def test_a_read_by_points_is_json_unless_the_medium_has_a_form_for_it(
    client: RestClient, path: str, name: str
) -> None:
    reply = await client("POST", f"{path}/value", {"points": [[1, 4]]}, headers={"Content-Type": name})
    assert reply["value"] == [20]


@pytest.mark.parametrize(
    "accept", ["text/plain", f"text/plain, {BINARY_TYPE};q=0.5", f"{BINARY_TYPE}, {JSON_TYPE}", "*/*", ""]
)
async def test_the_first_known_type_that_accept_names_is_taken(
    client: RestClient, path: str, accept: str
) -> None:
    reply = await client("GET", f"{path}/value", accept=accept)
    wanted = BINARY_TYPE if BINARY_TYPE in accept else JSON_TYPE
    assert reply.headers["Content-Type"].partition(";")[0] == wanted


# --- a new medium ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CsvBody:
    """`WriteBody` of lines: the coordinates of an element, and its value."""

    text: str
    append: Append | None = None
    fields: str | None = None
    sparse: bool = True

    @property
    def named(self) -> Mapping[str, Any]:
        return {}

    def resolve(self, dataset: StoredDataset, fields: tuple[str, ...]) -> tuple[Selection, Values]:
        try:
            rows = np.array([[int(cell) for cell in row] for row in csv.reader(io.StringIO(self.text))])
        except ValueError as error:
            raise BadRequest("The body is not CSV of integers.") from error
        return Points(dataset.extent, rows[:, :-1]), rows[:, -1].astype(dataset.dtype)

    def work(self, arrays: ValueArrays) -> int:
        return 0


async def read_csv(request: Request) -> CsvBody:
    return CsvBody((await request.body()).decode())


async def read_csv_request(request: Request) -> ReadRequest:
    """The body is a select string."""
    select = (await request.body()).decode()
    return ReadRequest.of(request, {}, lambda extent: parse_select(select, extent))


def lines(columns: Sequence[Any], values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, values, strict=True))
    return text.getvalue().encode()


async def answer_defined(read: ValueRead) -> web.StreamResponse:
    """A stream of any size: pages are made one after the other, in memory that is held for two."""
    page_size = read.request.service.settings.page_size
    pieces = DefinedRead(read.chunks, page_size, form=lines).pieces(read.selection)
    async with read.request.service.answers.hold(STREAM_PAGES * page_size):
        return await respond_stream(read.request, CSV_TYPE, pieces)


async def answer_found(read: FoundRead) -> web.StreamResponse:
    pieces = (lines([places], values) async for places, values in read.found)
    return await respond_stream(read.request, CSV_TYPE, pieces)


CSV = replace(
    JSON,
    name=CSV_TYPE,
    read_body=read_csv,
    read_request=read_csv_request,
    answer_defined=answer_defined,
    answer_found=answer_found,
)


@pytest.fixture
def csv_medium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEDIA, CSV.name, CSV)


@pytest.mark.usefixtures("csv_medium")
class TestNewMedium:
    async def test_get_answers_in_it(self, client: RestClient, path: str) -> None:
        reply = await client("GET", f"{path}/value", accept=CSV_TYPE, select="[0:2,1:5]", sparse=1)
        assert reply.headers["Content-Type"].partition(";")[0] == CSV_TYPE
        assert reply.body == b"0,1,10\n1,4,20\n"

    async def test_a_query_answers_in_it(self, client: RestClient, path: str) -> None:
        reply = await client("GET", f"{path}/value", accept=CSV_TYPE, query="_ > 15")
        assert reply.body == b"9,20\n15,30\n"

    async def test_put_reads_a_body_in_it(self, client: RestClient, path: str) -> None:
        await put(client, path, b"2,2,7\n0,1,8\n", headers={"Content-Type": CSV_TYPE})
        expected = np.zeros((4, 5), np.int32)
        expected[[0, 1, 3, 2], [1, 4, 0, 2]] = [8, 20, 30, 7]
        assert (await read(client, path, "<i4", (4, 5)) == expected).all()
        assert await defined_count(client, path) == 4

    async def test_a_body_that_is_wrong_changes_nothing(self, client: RestClient, path: str) -> None:
        await answered(client("PUT", f"{path}/value", b"2,2,x\n", headers={"Content-Type": CSV_TYPE}), 400)
        assert await defined_count(client, path) == 3

    async def test_a_sparse_body_needs_a_sparse_dataset(self, client: RestClient) -> None:
        dense = await create(client, [4], I32)
        reply = await client("PUT", f"{dense}/value", b"2,7\n", headers={"Content-Type": CSV_TYPE})
        assert reply.status == 400
        assert "not sparse" in reply["error"]["message"]

    async def test_post_reads_a_selection_in_it(self, client: RestClient, path: str) -> None:
        headers = {"Content-Type": CSV_TYPE}
        assert (
            await client("POST", f"{path}/value", b"[0:1,0:3]", headers=headers, accept=CSV_TYPE, sparse=1)
        ).body == b"0,1,10\n"

    async def test_what_it_has_no_form_for_is_json(self, client: RestClient, path: str) -> None:
        for end in ("value", "defined"):
            reply = await client("GET", f"{path}/{end}", accept=CSV_TYPE)
            assert reply.body == (await client("GET", f"{path}/{end}")).body
