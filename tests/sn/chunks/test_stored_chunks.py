"""How answers tell of chunks; which chunks there are is in test_chunks.py and test_linked_index.py."""

from __future__ import annotations

from hsparse.format.plan.grid import Grid
from hsparse.sn.chunks.stored_chunks import MAP_PAGE, Order, map_page, place, shown_sections


def test_a_place_has_scaled_coordinates_and_those_of_the_first_element() -> None:
    assert place(Grid((100, 90), (30, 20)), (2, 4)) == {"scaled": [2, 4], "offset": [60, 80]}
    assert place(Grid((), ()), ()) == {"scaled": [], "offset": []}


def test_sections_follow_each_other() -> None:
    shown = shown_sections([[40, 100, 1], [8, 16, 0]])
    assert [one["type"] for one in shown] == ["H5_SECTION_SELECTION", "H5_SECTION_FIXED"]
    assert [one["offset"] for one in shown] == [0, 40]
    assert shown[1] == {
        "type": "H5_SECTION_FIXED",
        "offset": 40,
        "size": 8,
        "unfiltered_size": 16,
        "filter_mask": 0,
    }
    assert shown_sections([]) == []


def test_maps_go_on_in_the_order_that_costs_least() -> None:
    wanted = map_page((3, 4))
    assert (wanted.order, wanted.after, wanted.skip, wanted.limit) == (Order.NATIVE, (3, 4), 0, MAP_PAGE)
