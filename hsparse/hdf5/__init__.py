"""HDF5 files: domains as files, import and export, maps of chunks, file-backed datasets, and jobs."""

from hsparse.extension import Command, Extension
from hsparse.optional_module import OptionalModule

COMMANDS = {
    "export": Command(
        "hsparse.hdf5.exporter.command",
        help="write a domain of a running server as an HDF5 file",
        parts={"s3": OptionalModule("hsparse.hdf5.exporter.s3_export", "s3")},
    ),
    "map": Command(
        "hsparse.hdf5.maps.command",
        help="write a map of the chunks of a domain",
        parts={"parquet": OptionalModule("hsparse.hdf5.maps.parquet_references", "parquet")},
    ),
    "import": Command(
        "hsparse.hdf5.importer.command",
        help="import an HDF5 file or a sparse matrix into a domain",
        parts={
            "s3": OptionalModule("hsparse.hdf5.importer.s3_source", "s3"),
            "zarr": OptionalModule("hsparse.hdf5.importer.formats.zarr_parts", "zarr"),
            "soma": OptionalModule("hsparse.hdf5.importer.formats.soma_experiment", "soma"),
        },
    ),
    "cp": Command("hsparse.hdf5.copy_command", help="copy domains and folders"),
    "concat": Command("hsparse.hdf5.concat_command", help="concatenate many AnnData without a copy"),
    "job": Command("hsparse.hdf5.jobs.command", help="have a server import or export a file"),
}
EXTENSION = Extension(
    commands=COMMANDS,
    service=OptionalModule("hsparse.hdf5.jobs.handlers"),
    store=OptionalModule("hsparse.hdf5.in_place.wrapping"),
    settings=OptionalModule("hsparse.hdf5.jobs.job_settings"),
)
