"""JSON of answers, and floats in it."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from hsparse.sn.json_text import encode_floats, encode_members
from tests.sn.conftest import DOMAIN


def test_floats_that_are_not_finite() -> None:
    found = json.loads(encode_floats([math.inf, -math.inf, math.nan, None, DOMAIN]))
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert found[3:] == [None, DOMAIN]


@pytest.mark.parametrize("odd", [1.5, math.nan, None, "null", np.array([1.0, math.inf])])
def test_members_are_encoded_together_as_one_by_one(odd: Any) -> None:
    members = {"a": {"value": [1, 2]}, 'b"': odd, "c": "é"}
    one_by_one = b",".join(encode_floats(name) + b":" + encode_floats(item) for name, item in members.items())
    assert encode_members(members) == one_by_one
    assert encode_members({}) == b""
