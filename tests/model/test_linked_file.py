"""Which URIs name a file of the store, and which are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.model.linked_file import MAX_URI, file_key


@pytest.mark.parametrize(
    ("uri", "key"),
    [
        ("s3://bucket/data/tall.h5", "data/tall.h5"),
        ("file://bucket/data/tall.h5", "data/tall.h5"),
        ("bucket/data/tall.h5", "data/tall.h5"),
        ("data/tall.h5", "data/tall.h5"),
        ("tall.h5", "tall.h5"),
        ("bucket", "bucket"),
        ("s3://bucket/bucket/tall.h5", "bucket/tall.h5"),
        ("bucketful/tall.h5", "bucketful/tall.h5"),
        ("data/a..b.h5", "data/a..b.h5"),
        ("dbase/x.h5", "dbase/x.h5"),
    ],
)
def test_a_file_of_the_store(uri: str, key: str) -> None:
    assert file_key(uri, "bucket") == key


@pytest.mark.parametrize(
    "uri",
    [
        "s3://other/data/tall.h5",
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket//etc/passwd",
        "s3:///tall.h5",
        "file:///etc/passwd",
        "file://other/tall.h5",
        "http://bucket/tall.h5",
        "https://account.blob.core.windows.net/bucket/tall.h5",
        "/etc/passwd",
        "../tall.h5",
        "data/../../etc/passwd",
        "bucket/../etc/passwd",
        "data/./tall.h5",
        "data//tall.h5",
        "data/",
        "",
        "db/0-0/d/0-0-0/0_0",
        "bucket/db/0-0/d/0-0-0/0_0",
        "s3://bucket/db/0-0/.group.json",
        "db",
        "home/alice/.domain.json",
        ".hsparse/locks/00",
        "home/.hidden/x.h5",
        "x" * (MAX_URI + 1),
    ],
)
def test_what_is_refused(uri: str) -> None:
    with pytest.raises(BadRequest) as caught:
        file_key(uri, "bucket")
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 400


@given(st.text(alphabet="abd./:s3-", max_size=30))
def test_no_key_leads_out_of_the_store_or_into_its_own(uri: str) -> None:
    try:
        key = file_key(uri, "b")
    except BadRequest:
        return
    components = key.split("/")
    assert all(components)
    assert not any(component.startswith(".") for component in components)
    assert components[0] != "db"
    assert uri.endswith(key)
