"""Ids are those of another tree in a snapshot, a clone and after a restore; texts that look like ids stay."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from hsparse.dn.data_settings import DataSettings
from hsparse.dn.record_form import add_checksum, check_checksum, parse_json
from hsparse.model.ids import moved_id, root_id
from hsparse.versions.moved_ids import moved
from tests.versions.conftest import DENSE, DOMAIN, Versioned

TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "to", "type": REFERENCE}, {"name": "note", "type": TEXT}],
}
CLONE = "/home/admin/clone"


def texts(root: str, id: str) -> tuple[str, ...]:
    """Return texts that have an id, or its half, in them."""
    return (
        id,
        root,
        root[2:19],
        f"datasets/{id}",
        f'{{"id":"{id}"}}',
        f'"id": "{root}"',
        f"from {root}, {id}",
    )


@pytest.mark.parametrize("large", [False, True], ids=["whole", "changes beside it"])
async def test_texts_stay_as_they_are(past: Versioned, large: bool) -> None:
    if large:
        past.data = DataSettings(large_record_size=1)
        await past.restart()
    id, root = await past.create("one", 10, DENSE), (await past.done("GET", "/"))["root"]
    words = texts(root, id)
    for number, word in enumerate(words):
        await past.done("PUT", f"/groups/{root}/attributes/a{number}", {"type": TEXT, "value": word})
        named = word.replace("/", "|")
        await past.done("PUT", f"/groups/{root}/links/{number}", {"h5path": f"/{named}"})
        links = {"links": {f"{number} {named}": {"h5path": "/x"}}}
        await past.done("PUT", f"/groups/{root}/links", links)
        await past.done(
            "PUT", f"/groups/{root}/attributes", {"attributes": {named: {"type": TEXT, "value": "x"}}}
        )
    pairs = {"type": PAIR, "shape": [2], "value": [[f"datasets/{id}", id], [f"groups/{root}", root]]}
    await past.done("PUT", f"/groups/{root}/attributes/pairs", pairs)
    await past.snapshot()
    await past.done("POST", "/clones", {"target": CLONE, "snapshot": 1})
    await past.done("DELETE", f"/groups/{root}/attributes/a0")
    await past.done("POST", "/snapshots/1/restore")
    for domain in (DOMAIN, f"{DOMAIN}@1", CLONE):
        to = (await past.done("GET", "/", domain=domain))["root"]
        found = (await past.done("GET", f"/groups/{to}/attributes", IncludeData=1, domain=domain))[
            "attributes"
        ]
        values = {one["name"]: one["value"] for one in found}
        assert tuple(values[f"a{number}"] for number in range(len(words))) == words
        assert {word.replace("/", "|") for word in words} < values.keys()
        there = moved_id(id, root, to)
        assert values["pairs"] == [[f"datasets/{there}", id], [f"groups/{to}", root]]
        links = (await past.done("GET", f"/groups/{to}/links", domain=domain))["links"]
        targets = {link["title"]: link.get("id", link.get("h5path")) for link in links}
        assert targets["one"] == there
        for number, word in enumerate(words):
            named = word.replace("/", "|")
            assert targets[str(number)] == f"/{named}"
            assert targets[f"{number} {named}"] == "/x"


def of_type(kind: Any, value: Any) -> dict[str, Any]:
    return {"attributes": {"a": {"type": kind, "shape": {"class": "H5S_SCALAR"}, "value": value}}}


HERE, THERE = root_id(bytes(range(8))), root_id(bytes(range(8, 16)))
ID = f"d{HERE[1:20]}1234-123456-123456"
VLEN, ARRAY = {"class": "H5T_VLEN", "base": REFERENCE}, {"class": "H5T_ARRAY", "base": REFERENCE, "dims": [2]}
NESTED = {"class": "H5T_COMPOUND", "fields": [{"name": "p", "type": PAIR}, {"name": "v", "type": VLEN}]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (REFERENCE, ID),
        (REFERENCE, [f"datasets/{ID}", None, HERE, ""]),
        (VLEN, [[ID], []]),
        (ARRAY, [ID, ID]),
        (NESTED, [[ID, "x"], [ID, ID]]),
        (NESTED, [[[ID, "x"], [ID]], [[ID, "y"], []]]),
        ({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}, {"id": ID, "selection": []}),
        (PAIR, None),
    ],
)
def test_references_are_moved_and_come_back(kind: Any, value: Any) -> None:
    record = {"id": ID, "root": HERE, **of_type(kind, value)}
    data = add_checksum(orjson.dumps(record))
    there = moved(data, HERE, THERE)
    check_checksum(there, "key")
    assert (ID.encode() in there, HERE.encode() in there) == (False, False)
    back = parse_json(moved(there, THERE, HERE))
    assert {name: back[name] for name in record} == record
