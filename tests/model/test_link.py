"""Links."""

from __future__ import annotations

import pytest

from hsparse.errors import BadRequest
from hsparse.model.link import (
    check_title,
    external_file,
    group_link_json,
    link_json,
    listed_link_json,
    parse_link,
    same_link,
)

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
        None,
        [],
        {},
        {"id": "x"},
        {"id": None},
        {"id": ID, "h5path": "/x"},
        {"h5path": ""},
        {"h5path": "/x", "file": 1},
        {"h5path": "/x", "class": "H5L_TYPE_EXTERNAL"},
        {"id": ID, "class": "H5L_TYPE_SOFT"},
        {"h5path": "x" * 5000},
    ],
)
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
