"""A domain written to a disk as a file with filters of choice, all of it or nothing."""

from __future__ import annotations

from pathlib import Path

from hsparse.cli.exporter.filter_choice import FilterChoice
from hsparse.cli.exporter.refiltered_file import Progress, RefilteredFile
from hsparse.cli.importer.source import Source


def export_filtered(source: Source, choice: FilterChoice, target: Path, progress: Progress) -> int:
    """Write the file to `target` and return its size in bytes.

    Until it is whole it is called as `target` with the etag and `.filtered.part` behind, and it is removed when
    anything goes wrong. Raises what reading and writing raise.
    """
    part = target.with_name(f"{target.name}.{source.fingerprint}.filtered.part")
    try:
        size = RefilteredFile(source, choice).write(part, progress)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return size
