"""Random elements are valid ones of their type, and differ."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import split_elements
from tests.support.dataset_subject import COMPOUND, LISTS, WORDS, random_element


@pytest.mark.parametrize("item", [WORDS, LISTS, COMPOUND], ids=["words", "lists", "compound"])
def test_random_elements(item: object) -> None:
    datatype, generator = parse_type(item), np.random.default_rng(1)
    found = [random_element(datatype.element, generator) for _ in range(50)]
    assert len(set(found)) > 25
    if datatype.is_vlen:
        assert list(split_elements(b"".join(found), datatype.element, (50,))) == found
    else:
        assert {len(one) for one in found} == {datatype.dtype.itemsize}
