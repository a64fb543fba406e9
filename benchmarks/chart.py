"""A bar chart of ratios as an SVG that is legible on light and on dark pages.

The axis is logarithmic and the bars begin at 1: ratios above 1 extend to the right, ratios below 1 to the left, and a
ratio has the same length as its inverse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LABELS, RIGHT = 760, 270, 60
"""Widths in pixels: of the chart, of its column of labels, of the space for a number right of the longest bar."""
BAR, ROW, TOP, BOTTOM = 13, 44, 64, 30
STYLE = """\
    .page { fill: #ffffff; stroke: #d0d7de; }
    .bar0 { fill: #0969da; }
    .bar1 { fill: #bc4c00; }
    .grid { stroke: #d0d7de; }
    .one { stroke: #1f2328; stroke-width: 1.5; }
    text { font-family: "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; font-size: 13px; fill: #1f2328; }
    .title { font-size: 15px; font-weight: bold; }
    .tick { fill: #57606a; font-size: 12px; text-anchor: middle; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #30363d; }
      .bar0 { fill: #58a6ff; }
      .bar1 { fill: #f0883e; }
      .grid { stroke: #30363d; }
      .one { stroke: #e6edf3; }
      text { fill: #e6edf3; }
      .tick { fill: #9da7b3; }
    }
"""


@dataclass(frozen=True, slots=True)
class Bars:
    """The bars of one row: a ratio for each series, or None for no bar."""

    label: str
    ratios: tuple[float | None, ...]


def chart(title: str, series: Sequence[str], rows: Sequence[Bars]) -> str:
    """Return the chart as SVG; ratios must be positive, and there may be at most two series."""
    known = [ratio for row in rows for ratio in row.ratios if ratio is not None]
    low = math.floor(math.log2(min(1.0, *known)))
    high = math.ceil(math.log2(max(2.0, *known)))

    def place(ratio: float) -> float:
        return LABELS + (math.log2(ratio) - low) / (high - low) * (WIDTH - LABELS - RIGHT)

    height = TOP + ROW * len(rows) + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title">',
        f'  <title id="title">{escape(title)}</title>',
        f"  <style>\n{STYLE}  </style>",
        f'  <rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'  <text class="title" x="16" y="26">{escape(title)}</text>',
    ]
    lines += _legend(series)
    for power in range(low, high + 1):
        x = place(2.0**power)
        kind = "one" if power == 0 else "grid"
        lines.append(
            f'  <line class="{kind}" x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{height - BOTTOM}"/>'
        )
        lines.append(f'  <text class="tick" x="{x:.1f}" y="{height - 10}">{2.0**power:g}</text>')
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        lines.append(f'  <text x="16" y="{y + BAR + 5}">{escape(row.label)}</text>')
        for index, ratio in enumerate(row.ratios):
            if ratio is not None:
                lines += _bar(index, y + index * (BAR + 2), place(1.0), place(ratio), ratio)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _legend(series: Sequence[str]) -> list[str]:
    lines = []
    for index, name in enumerate(series):
        x = WIDTH - 110 * (len(series) - index)
        lines.append(f'  <rect class="bar{index}" x="{x}" y="15" width="{BAR}" height="{BAR}"/>')
        lines.append(f'  <text x="{x + BAR + 6}" y="26">than {escape(name)}</text>')
    return lines


def _bar(index: int, y: int, origin: float, end: float, ratio: float) -> list[str]:
    left, width = min(origin, end), abs(end - origin)
    return [
        f'  <rect class="bar{index}" x="{left:.1f}" y="{y}" width="{width:.1f}" height="{BAR}"/>',
        f'  <text x="{max(origin, end) + 6:.1f}" y="{y + BAR - 2}">{ratio:g}</text>',
    ]
