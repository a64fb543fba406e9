"""A domain written to a disk as a file with filters of choice, all of it or nothing."""

from __future__ import annotations

from pathlib import Path

from hsparse.cli.exporter.filter_choice import FilterChoice
from hsparse.cli.exporter.refiltered_file import Progress, RefilteredFile
from hsparse.cli.importer.source import Source
from hsparse.client.part_file import PartFile


def export_filtered(
    source: Source, choice: FilterChoice, target: Path, progress: Progress, *, replace: bool = False
) -> int:
    """Write the file to `target` and return its size in bytes.

    Until it is whole it is called as `target` with the etag and `.filtered.part` behind, and it is removed when
    anything goes wrong. Raises what reading and writing raise, and what `PartFile` does.
    """
    with PartFile(target, f"{source.fingerprint}.filtered") as part:
        try:
            part.file.truncate(0)
            size = RefilteredFile(source, choice).write(part.file.fileno(), progress)
            part.finish(replace=replace)
        except BaseException:
            part.path.unlink(missing_ok=True)
            raise
    return size
