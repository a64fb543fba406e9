"""What records have: ids, links, the rights of ACLs, the times of creation, the version of the schema."""

from __future__ import annotations

import math
from typing import Any

import pytest
from h5json.objid import isS3ObjKey
from hypothesis import example, given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, Corrupt, NotFound, Unsupported
from hsparse.format.chunk_spec import chunk_key
from hsparse.model.acl import (
    ANONYMOUS,
    Principal,
    Right,
    check_rights,
    deciding_entries,
    full_rights,
    is_granted,
)
from hsparse.model.ids import (
    check_job_id,
    chunk_of_key,
    is_job_id,
    is_map_key,
    job_id_of_key,
    job_key,
    job_key_prefix,
    map_key,
    new_id,
    new_job_id,
    new_root_id,
    storage_key,
    tree_prefix,
)
from hsparse.model.link import (
    check_title,
    external_file,
    group_link_json,
    link_json,
    listed_link_json,
    parse_link,
    same_link,
)
from hsparse.model.schema import (
    APPENDS,
    CHUNK_STATISTICS,
    MAX_FEATURES,
    STRIPES,
    Schema,
    given_creation_time,
    parse_schema,
    schema_of,
)
from hsparse.sn.request import Domain
from tests.support.characters import CHARACTERS
from tests.testing.manual_clock import ManualClock

ID = "g-00000000-00000001-0000-000000-000001"


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ({"id": ID}, {"class": "H5L_TYPE_HARD", "id": ID}),
        ({"id": ID, "class": "H5L_TYPE_HARD", "created": 5}, {"class": "H5L_TYPE_HARD", "id": ID}),
        ({"h5path": "/x"}, {"class": "H5L_TYPE_SOFT", "h5path": "/x"}),
        (
            {"h5path": "/x", "file": "/f"},
            {"class": "H5L_TYPE_EXTERNAL", "h5path": "/x", "file": "/f", "h5domain": "/f"},
        ),
        (
            {"h5path": "/x", "h5domain": "/f"},
            {"class": "H5L_TYPE_EXTERNAL", "h5path": "/x", "file": "/f", "h5domain": "/f"},
        ),
    ],
)
def test_stored_forms(body: object, stored: dict[str, object]) -> None:
    assert parse_link(body) == stored
    created = stored | {"created": 3.0}
    bare = group_link_json(created)
    assert listed_link_json("t", created) == bare | {"title": "t"}
    shown = link_json("t", created)
    assert {key: shown[key] for key in shown if key in bare} == {
        key: bare[key] for key in bare if key in shown
    }
    assert shown["title"] == "t"


def test_both_dialects_see_the_file() -> None:
    for stored in ({"h5domain": "/f"}, {"file": "/f"}):
        link = {"class": "H5L_TYPE_EXTERNAL", "h5path": "/x", **stored}
        assert external_file(link) == "/f"
        assert (link_json("t", link)["file"], link_json("t", link)["h5domain"]) == ("/f", "/f")
        assert same_link(parse_link({"h5path": "/x", "file": "/f"}), link | {"created": 1.0})
        assert not same_link(parse_link({"h5path": "/x", "file": "/g"}), link)
        assert not same_link(parse_link({"h5path": "/x"}), link)


@pytest.mark.parametrize(
    "body",
    [
        None, [], {}, {"id": "x"}, {"id": None}, {"id": ID, "h5path": "/x"}, {"h5path": ""},
        {"h5path": "/x", "file": 1}, {"h5path": "/x", "class": "H5L_TYPE_EXTERNAL"},
        {"id": ID, "class": "H5L_TYPE_SOFT"}, {"h5path": "x" * 5000},
    ],
)  # fmt: skip
def test_what_is_no_link(body: object) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_link(body)
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize("title", ["", "a/b", ".", 7, None, "x" * 2000])
def test_what_is_no_title(title: object) -> None:
    with pytest.raises(BadRequest):
        check_title(title)


@pytest.mark.parametrize("title", ["a", "..", "a b", "ü", " "])
def test_titles(title: str) -> None:
    assert check_title(title) == title


CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
DATASET = new_id("datasets", ROOT, CLOCK)


def test_nobody_takes_a_chunk_map_for_a_chunk_and_it_goes_with_the_dataset() -> None:
    key = map_key(DATASET)
    assert not isS3ObjKey(key)
    assert chunk_of_key(key) is None
    assert is_map_key(key)
    for prefix in (tree_prefix(DATASET), tree_prefix(ROOT)):
        assert key.startswith(prefix)
    for other in (chunk_key(DATASET, (1, 2)), storage_key(DATASET), storage_key(ROOT)):
        assert not is_map_key(other)


def test_a_key_leads_to_its_job_and_nobody_takes_it_for_an_object() -> None:
    id = new_job_id("ada", ManualClock())
    assert check_job_id(id) == id
    assert is_job_id(id)
    assert storage_key(id) == job_key(id)
    assert job_id_of_key(job_key(id)) == id
    assert job_key(id).startswith(job_key_prefix("ada"))
    assert not job_key(id).startswith(job_key_prefix("ben"))
    assert not isS3ObjKey(job_key(id))
    assert chunk_of_key(job_key(id)) is None


def test_ids_of_a_user_sort_by_age() -> None:
    clock = ManualClock()
    ids = []
    for _ in range(3):
        clock.time += 0.001
        ids.append(new_job_id("ada", clock))
    assert sorted(ids) == ids


@pytest.mark.parametrize(
    "id", ["", "x", "j-", "j-../../home", "g-00000000-00000000-0000-000000-000000", "j-\ud800"]
)
def test_what_is_no_id_is_no_job(id: str) -> None:
    with pytest.raises(NotFound):
        check_job_id(id)


def test_a_record_needs_what_is_new_in_it_since_0_1() -> None:
    assert schema_of({"id": "d-1", "generation": 3, "trim": True}) is None
    appended = {"id": "d-1", "appends": {"dim": 0, "parts": [], "dropped": {}}}
    assert schema_of(appended) == Schema(write_features=(APPENDS,))
    striped = {"layout": {"class": "H5D_CHUNKED_STRIPED", "stripes": 3, "layout": {}}}
    assert schema_of(striped) == Schema(read_features=(STRIPES,))
    both = schema_of(appended | striped)
    assert both == Schema(1, (STRIPES,), (APPENDS,))
    assert parse_schema(both.to_json(), "it") == both


def test_what_is_known_is_readable_and_writable() -> None:
    for schema in (Schema(), Schema(write_features=(APPENDS,)), parse_schema({"version": 1}, "it")):
        schema.check_readable("it")
        schema.check_writable("it")
        assert schema.writable


@pytest.mark.parametrize(
    ("schema", "named"), [(Schema(version=2), "version 2"), (Schema(read_features=("spirals",)), "'spirals'")]
)
def test_an_unknown_version_or_read_feature_is_refused(schema: Schema, named: str) -> None:
    with pytest.raises(Unsupported) as refused:
        schema.check_readable("The object x")
    for part in ("The object x", named, "newer hsparse"):
        assert part in refused.value.message


def test_an_unknown_write_feature_leaves_reading() -> None:
    schema = Schema(write_features=(APPENDS, "spirals"))
    schema.check_readable("The object x")
    assert not schema.writable
    with pytest.raises(Unsupported) as refused:
        schema.check_writable("The object x")
    for part in ("The object x", "'spirals'", "newer hsparse"):
        assert part in refused.value.message


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"version": "1"}, {"version": True}, {"version": 1, "readFeatures": "x"},
        {"version": 1, "readFeatures": None}, {"version": 1, "writeFeatures": [1]},
        {"version": 1, "writeFeatures": ["x"] * (MAX_FEATURES + 1)},
    ],
)  # fmt: skip
def test_what_is_no_schema_is_corrupt(value: Any) -> None:
    with pytest.raises(Corrupt, match="The object x"):
        parse_schema(value, "The object x")


def test_chunks_with_statistics_are_a_feature_to_read() -> None:
    assert schema_of({"id": "d-1", "chunkStatistics": True}) == Schema(read_features=(CHUNK_STATISTICS,))
    assert schema_of({"id": "d-1", "chunkStatistics": False}) is None


NOW = 1795330288.26


@pytest.mark.parametrize("time", [1795330283.25, 1795330288, NOW - 10, NOW + 300])
def test_a_recent_time_is_taken_as_it_is(time: float) -> None:
    (taken,) = given_creation_time({"created": time}, NOW).values()
    assert taken == time
    assert type(taken) is type(time)


@pytest.mark.parametrize("time", [None, 999, NOW - 11, NOW + 400, math.nan, math.inf, -math.inf])
def test_another_time_is_ignored(time: float | None) -> None:
    assert given_creation_time({"created": time}, NOW) == {}


@pytest.mark.parametrize("time", ["now", True, [1], {}])
def test_what_is_no_number_is_refused(time: Any) -> None:
    with pytest.raises(BadRequest, match="created"):
        given_creation_time({"created": time}, NOW)


RIGHTS = ["create", "read", "update", "delete", "readACL", "updateACL"]
NAMES = ["ada", "bob", "default", "anonymous", "g:staff", "g:ada"]

entries = st.dictionaries(st.sampled_from(RIGHTS), st.booleans())
acl_maps = st.dictionaries(st.sampled_from(NAMES), entries)
rights = st.sampled_from(list(Right))


def expected(acls: dict[str, dict[str, bool]], name: str, groups: list[str], right: str) -> bool:
    """The order of decision, spelled out."""
    own = acls.get(name)
    if own is not None:
        return own.get(right, False)
    granting = [g for g in groups if acls.get(f"g:{g}", {}).get(right, False)]
    return bool(granting) or acls.get("default", {}).get(right, False)


@example(
    {"ada": {"read": False}, "g:staff": full_rights(), "default": full_rights()}, "ada", ["staff"], Right.READ
)
@example({"g:staff": {"read": False}, "default": {"read": True}}, "ada", ["staff"], Right.READ)
@example({"g:ada": full_rights()}, "ada", [], Right.READ)
@given(acl_maps, st.sampled_from(["ada", "bob"]), st.lists(st.sampled_from(["staff", "ada", "none"])), rights)
def test_own_entry_then_groups_then_default(
    acls: dict[str, dict[str, bool]], name: str, groups: list[str], right: Right
) -> None:
    principal = Principal(name, groups=frozenset(groups))
    assert is_granted(acls, principal, right) is expected(acls, name, groups, right.value)


@given(acl_maps, rights)
def test_admin_has_every_right(acls: dict[str, dict[str, bool]], right: Right) -> None:
    assert Domain("/", {"acls": acls}).allows(Principal("ada", admin=True), right)


@given(acl_maps, rights)
def test_anonymous_has_only_what_default_grants_or_may_read_by_an_entry(
    acls: dict[str, dict[str, bool]], right: Right
) -> None:
    default = acls.get("default", {})
    deciding = acls.get("anonymous", default) if right is Right.READ else default
    assert is_granted(acls, ANONYMOUS, right) is deciding.get(right.value, False)


@given(acl_maps, acl_maps, st.sampled_from(["ada", "anonymous"]), st.booleans(), rights)
def test_other_entries_than_the_deciding_ones_decide_nothing(
    acls: dict[str, dict[str, bool]], others: dict[str, dict[str, bool]], name: str, admin: bool, right: Right
) -> None:
    principal = Principal(name, admin, frozenset({"staff", "none"}))
    deciding = deciding_entries(acls, principal)
    later = {who: entry for who, entry in others.items() if who not in deciding}
    later |= {who: entry for who, entry in deciding.items() if entry is not None}
    assert deciding_entries(later, principal) == deciding
    assert Domain("/", {"acls": later}).allows(principal, right) is Domain("/", {"acls": acls}).allows(
        principal, right
    )


@pytest.mark.parametrize("entry", [None, True, [], "read", {"read": 1}, {"read": "true"}, {"read": None}])
def test_malformed_stored_entries_deny(entry: Any) -> None:
    acls = {"ada": entry, "default": entry}
    assert not is_granted(acls, Principal("ada"), Right.READ)
    assert not is_granted(acls, ANONYMOUS, Right.READ)


def test_full_rights_is_every_right_and_a_new_dict_each_time() -> None:
    assert full_rights() == dict.fromkeys(RIGHTS, True)
    assert full_rights() is not full_rights()


@given(entries)
def test_check_rights_returns_what_was_sent(body: dict[str, bool]) -> None:
    checked = check_rights(body)
    assert checked == body
    assert checked is not body


@given(entries, st.text(CHARACTERS).filter(lambda key: key not in RIGHTS))
def test_check_rights_refuses_an_unknown_key(body: dict[str, bool], key: str) -> None:
    with pytest.raises(BadRequest, match="is not a right"):
        check_rights({**body, key: True})


@given(
    st.sampled_from(RIGHTS), st.one_of(st.none(), st.integers(), st.text(CHARACTERS), st.lists(st.booleans()))
)
def test_check_rights_refuses_a_value_that_is_no_boolean(key: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=f"The right {key} must be true or false"):
        check_rights({key: value})
