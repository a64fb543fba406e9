from __future__ import annotations

from typing import Any

import pytest

from hsparse.model.shown_type import shown_type

BASE = {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}
LIST = [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}]
MAPPING = {"FALSE": 0, "TRUE": 1}
BOTH = {"class": "H5T_ENUM", "base": BASE, "mapping": MAPPING, "members": LIST}
PLAIN = ["H5T_STD_I8LE", BASE, {"class": "H5T_ARRAY", "base": BASE, "dims": [2]}]


@pytest.mark.parametrize("names", [{"mapping": MAPPING}, {"members": LIST}, {"mapping": LIST}])
def test_an_enum_has_its_names_in_both_forms(names: dict[str, Any]) -> None:
    enum = {"class": "H5T_ENUM", "base": BASE, **names}
    assert shown_type(enum) == BOTH
    array = {"class": "H5T_ARRAY", "base": enum, "dims": [2]}
    assert shown_type(array) == array | {"base": BOTH}
    fields = [{"name": "n", "type": BASE}, {"name": "e", "type": array}]
    compound = {"class": "H5T_COMPOUND", "fields": fields}
    assert shown_type(compound)["fields"] == [fields[0], {"name": "e", "type": array | {"base": BOTH}}]
    assert enum.keys() == {"class", "base", *names}


@pytest.mark.parametrize("item", [*PLAIN, {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": BASE}]}])
def test_what_holds_no_enum_is_the_same_object(item: Any) -> None:
    assert shown_type(item) is item
