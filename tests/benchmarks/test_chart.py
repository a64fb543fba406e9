"""Bars of ratios: wins to the right of 1, losses to the left, by the same length."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.chart import Bars, chart

SVG = "{http://www.w3.org/2000/svg}"


def bars(svg: str) -> list[tuple[str, float, float]]:
    """Return class, left edge and width of each bar, without the legend's squares."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    kinds = [rect.attrib for rect in found if rect.attrib["class"].startswith("bar")]
    return [(one["class"], float(one["x"]), float(one["width"])) for one in kinds if "." in one["x"]]


def test_a_win_and_a_loss_of_the_same_factor_are_bars_of_the_same_length() -> None:
    (won, lost) = bars(chart("title", ("A", "B"), [Bars("row", (4.0, 0.25))]))
    assert [won[0], lost[0]] == ["bar0", "bar1"]
    assert won[2] == lost[2] > 0
    assert lost[1] + lost[2] == won[1]


def test_a_ratio_that_was_not_measured_has_no_bar() -> None:
    assert [kind for kind, *_ in bars(chart("title", ("A", "B"), [Bars("row", (None, 3.0))]))] == ["bar1"]


def test_labels_are_escaped() -> None:
    svg = chart("a < b", ("A & B",), [Bars("c > d", (2.0,))])
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "a < b" in texts
    assert "than A & B" in texts
    assert "c > d" in texts
