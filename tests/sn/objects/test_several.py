"""Bodies about several objects at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.objects.several import by_creation
from hsparse.testing.rest_client import RestClient

ATTRIBUTE = {"type": "H5T_STD_I8LE", "value": 1}


@given(st.dictionaries(st.text(max_size=2), st.none() | st.floats(0, 9) | st.text(max_size=1)))
def test_in_the_order_of_creation(times: dict[str, object]) -> None:
    bodies = {name: {"created": time} for name, time in times.items()}
    ordered = by_creation(bodies)
    assert dict(ordered) == bodies
    known = [time if isinstance(time, float) else 0.0 for time in (times[name] for name, _ in ordered)]
    assert known == sorted(known)


async def test_every_form(rest: RestClient, root: str) -> None:
    group = (await rest("POST", "/groups", {"link": {"id": root, "name": "g"}}))["id"]
    own = f"/groups/{root}/attributes"
    assert (await rest("PUT", own, {"attributes": {"a": ATTRIBUTE}})).status == 201
    assert (await rest("PUT", own, {"attributes": {"b": ATTRIBUTE}, "obj_ids": [group]})).status == 201
    assert (await rest("PUT", own, {"obj_ids": {group: {"attributes": {"c": ATTRIBUTE}}}})).status == 201
    for id, names in ((root, ["a"]), (group, ["b", "c"])):
        listed = (await rest("GET", f"/groups/{id}/attributes"))["attributes"]
        assert [one["name"] for one in listed] == names


async def test_what_is_no_form(rest: RestClient, root: str) -> None:
    bodies: tuple[dict[str, object], ...] = (
        {"obj_ids": []},
        {"obj_ids": {}},
        {"obj_ids": "x"},
        {"obj_ids": ["x"], "attributes": {"a": ATTRIBUTE}},
        {"obj_ids": {root: {"attributes": {"a": ATTRIBUTE}}}, "attributes": {"a": ATTRIBUTE}},
        {"obj_ids": {root: 7}},
        {"obj_ids": [root]},
        {},
    )
    for body in bodies:
        assert (await rest("PUT", f"/groups/{root}/attributes", body)).status == 400
    questions: tuple[object, ...] = (
        {"obj_ids": []},
        {"obj_ids": {root: 7}},
        {"obj_ids": {root: []}, "attr_names": []},
        {},
    )
    for question in questions:
        assert (await rest("POST", f"/groups/{root}/attributes", question)).status == 400
