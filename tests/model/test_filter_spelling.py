"""However a filter is asked for, it is told by class, id and name."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.model.filter_json import NBIT, SCALEOFFSET, parse_filters
from hsparse.model.filter_spelling import SPELLINGS, spelled_filters

GZIP = {"class": "H5Z_FILTER_DEFLATE", "id": 1, "name": "gzip"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("gzip", GZIP),
        ("deflate", {**GZIP, "name": "deflate"}),
        ("H5Z_FILTER_DEFLATE", GZIP),
        (1, GZIP),
        ({"id": 1, "level": 4}, {**GZIP, "level": 4}),
        ({"class": "H5Z_FILTER_DEFLATE"}, GZIP),
        (
            {"class": "H5Z_FILTER_DEFLATE", "name": "deflate", "level": 0},
            {**GZIP, "name": "deflate", "level": 0},
        ),
        ({"class": "H5Z_FILTER_USER", "id": 32004}, {"class": "H5Z_FILTER_LZ4", "id": 32004, "name": "lz4"}),
        ({"name": "zstd"}, {"class": "H5Z_FILTER_ZSTD", "id": 32015, "name": "zstd"}),
        ("none", "none"),
        ({"class": "H5Z_FILTER_NONE"}, {"class": "H5Z_FILTER_NONE"}),
        (77, 77),
    ],
)
def test_a_filter_is_told_by_class_id_and_name(asked: Any, told: Any) -> None:
    assert spelled_filters([asked]) == [told]
    assert spelled_filters([told]) == [told]


@pytest.mark.parametrize("id", sorted(set(SPELLINGS) - {NBIT, SCALEOFFSET}))
def test_what_is_told_means_the_same(id: int) -> None:
    (told,) = spelled_filters([id])
    assert told["id"] == id
    options: dict[str, Any] = {"sparse": False, "chunk_bytes": 800}
    assert parse_filters([told], 8, **options) == parse_filters([id], 8, **options)
