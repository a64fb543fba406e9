"""The project's pages: tables and fenced blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PAGES = sorted(
    [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")], key=lambda page: page.relative_to(PROJECT)
)
RECORDS = PROJECT / "docs" / "decisions"
"""The decision records: a page for each subject, and an index of all records by page."""
SERVER = "http://127.0.0.1:5101"
"""The server in the pages' examples, to be replaced by one that runs."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command of a console block, and the output that is printed below it."""

    text: str
    output: str

    def matches(self, output: str) -> bool:
        """Say whether `output` is what the page prints; `...` stands for anything, spaces do not count."""
        pattern = ".*".join(re.escape(re.sub(r"\s+", "", part)) for part in self.output.split("..."))
        return re.fullmatch(pattern, re.sub(r"\s+", "", output)) is not None


def page(name: str) -> str:
    """Return a page's text."""
    return (PROJECT / name).read_text()


def blocks(name: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in a language."""
    return [text for kind, text in FENCE.findall(page(name)) if kind == language]


def prose(name: str) -> str:
    """Return a page's text without its fenced blocks."""
    return FENCE.sub("", page(name))


def rows(name: str, first: str) -> list[list[str]]:
    """Return the cells of all rows of the tables whose first column is titled `first`."""
    found: list[list[str]] = []
    inside = False
    for line in page(name).splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == first:
            inside = True
        elif inside and not line.startswith("| ---"):
            found.append(cells)
    return found


def commands(name: str) -> list[Command]:
    """Return the commands of a page's console blocks: `$ ` begins one, four spaces go on with it."""
    found: list[Command] = []
    for block in blocks(name, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            length = next(
                (i for i, line in enumerate(lines) if i and not line.startswith("    ")), len(lines)
            )
            found.append(Command("\n".join(lines[:length]), "\n".join(lines[length:])))
    return found


def anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub and the site of `make docs` make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def anchors(name: str) -> set[str]:
    """Return the anchors of a page's headings."""
    return {anchor(title) for title in re.findall(r"^#+ (.*)$", prose(name), re.MULTILINE)}


@dataclass(frozen=True, slots=True)
class Record:
    """A decision record: its number and title, the page it is on, and its text below the heading."""

    number: int
    title: str
    page: str
    text: str

    @property
    def link(self) -> str:
        """Return the record's address, relative to the index."""
        return f"{self.page}#{anchor(f'{self.number}. {self.title}')}"


def records() -> list[Record]:
    """Return all decision records, by number."""
    found = []
    for path in RECORDS.glob("*.md"):
        for part in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]:
            head, _, text = part.partition("\n")
            if number := re.match(r"(\d+)\. ", head):
                found.append(Record(int(number[1]), head[number.end() :], path.name, text))
    return sorted(found, key=lambda record: record.number)
