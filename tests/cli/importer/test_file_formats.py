"""Files of other formats, imported and compared with what the libraries of their fields read of them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io

import hsparse
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from tests.cli.importer.conftest import Import, Refused, exported, opened
from tests.cli.importer.test_sparse_matrix import elements_at, elements_of, random_matrix
from tests.client.anndata.conftest import assert_same
from tests.support.changed_bytes import change_bytes

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning",
    "ignore::FutureWarning",
    "ignore:datetime.datetime.utcnow:DeprecationWarning:loompy.utils",
    "ignore:The 'generic' unit:DeprecationWarning:cooler.util",
)
CELLS, GENES = 60, 40
NAMES = ["TP53", "TP53", "TP53-1", "MALAT1", *(f"gene {number}" for number in range(GENES - 4))]
KINDS = ["Gene Expression"] * 30 + ["Antibody Capture"] * 10


def barcodes() -> list[str]:
    return [f"ACGT{number:04}-1" for number in range(CELLS)]


def ids() -> list[str]:
    return [f"ENSG{number:011}" for number in range(GENES)]


def text(values: list[str]) -> Any:
    return np.array([one.encode() for one in values])


def cell_ranger(path: Path, dtype: str = "<i4") -> Path:
    """Write what Cell Ranger from version 3 on writes."""
    matrix = random_matrix(1, dtype, (CELLS, GENES))
    with h5py.File(path, "w") as file:
        file.attrs["software_version"] = "cellranger-7.1.0"
        for name in ("data", "indices", "indptr"):
            values = getattr(matrix, name).astype("<i8" if name != "data" else dtype)
            file.create_dataset(f"matrix/{name}", data=values, chunks=(50,), compression="gzip")
        file["matrix/shape"] = np.array([GENES, CELLS], "<i4")
        file["matrix/barcodes"] = text(barcodes())
        features = {"id": ids(), "name": NAMES, "feature_type": KINDS, "genome": ["GRCh38"] * GENES}
        for name, values in features.items():
            file.create_dataset(f"matrix/features/{name}", data=text(values), chunks=(7,), compression="gzip")
        file["matrix/features/_all_tag_keys"] = text(["genome"])
    return path


def probes(path: Path) -> Path:
    """Write a matrix of probes, which has more columns, some of booleans."""
    cell_ranger(path)
    with h5py.File(path, "r+") as file:
        file["matrix/features/gene_id"] = text([f"of {one}" for one in ids()])
        file["matrix/features/filtered_probes"] = np.arange(GENES) % 2 == 0
        file["matrix/filtered_barcodes"] = np.arange(CELLS) % 3 == 0
    return path


def genomes(path: Path, *names: str) -> Path:
    """Write what Cell Ranger before version 3 wrote."""
    with h5py.File(path, "w") as file:
        for seed, genome in enumerate(names):
            matrix = random_matrix(seed, "<i4", (CELLS, GENES))
            for name in ("data", "indices", "indptr"):
                file[f"{genome}/{name}"] = getattr(matrix, name)
            file[f"{genome}/shape"] = [GENES, CELLS]
            file[f"{genome}/barcodes"] = text(barcodes())
            file[f"{genome}/genes"], file[f"{genome}/gene_names"] = text(ids()), text(NAMES)
    return path


def directory(path: Path, *, is_old: bool = False, dtype: str = "<i8", prefix: str = "") -> Path:
    """Write the three files, gzipped but for those of the old form; an archive puts a prefix in front."""
    path.mkdir(exist_ok=True)
    end, opened = ("", open) if is_old else (".gz", gzip.open)
    columns = [ids(), NAMES] if is_old else [ids(), NAMES, KINDS]
    lines = {
        "barcodes.tsv": barcodes(),
        "genes.tsv" if is_old else "features.tsv": ["\t".join(row) for row in zip(*columns, strict=True)],
    }
    for name, some in lines.items():
        with opened(path / f"{prefix}{name}{end}", "wb") as file:
            file.write("".join(f"{line}\n" for line in some).encode())
    with opened(path / f"{prefix}matrix.mtx{end}", "wb") as file:
        scipy.io.mmwrite(file, random_matrix(3, dtype, (GENES, CELLS)).tocoo())
    return path


def scanpy() -> Any:
    """Return the module, which takes seconds to import: each worker collects every test, and one runs these."""
    return import_module("scanpy")


def read_h5(path: Path, genome: str | None = None) -> anndata.AnnData:
    return scanpy().read_10x_h5(path, gex_only=False, genome=genome)


@pytest.mark.parametrize(
    "write",
    [cell_ranger, lambda path: cell_ranger(path, "<i8"), probes, lambda path: genomes(path, "mm10")],
    ids=["v3", "wide", "probes", "v2"],
)
def test_a_matrix_of_cell_ranger_is_what_scanpy_reads(
    imported: Import, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    path = write(tmp_path / "raw_feature_bc_matrix.h5")
    connection = imported(path)
    with opened(connection) as file:
        assert_same(file.to_anndata(), read_h5(path))
    out = exported(connection, tmp_path / "out.h5ad", "--matrices", "anndata-csr")
    assert_same(anndata.read_h5ad(out), read_h5(path))


def test_one_of_several_genomes(refused: Refused, imported: Import, tmp_path: Path) -> None:
    path = genomes(tmp_path / "two.h5", "hg19", "mm10")
    assert "name one of hg19, mm10 by --part" in refused(path)
    assert "has no hg38" in refused(path, "--part", "hg38")
    with opened(imported(path, "--part", "mm10")) as file:
        assert_same(file.to_anndata(), read_h5(path, "mm10"))


def test_as_is_and_what_only_looks_like_it(imported: Import, tmp_path: Path) -> None:
    path = cell_ranger(tmp_path / "cells.h5")
    with opened(imported(path, "--as-is")) as file:
        assert file["matrix/indptr"].shape == (CELLS + 1,)
    with h5py.File(path, "r+") as file:
        del file["matrix/barcodes"]
    with opened(imported(path)) as file:
        assert sorted(file) == ["matrix"]
        assert "barcodes" not in file["matrix"]


def test_what_has_no_place_is_named(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cell_ranger(tmp_path / "cells.h5")
    with h5py.File(path, "r+") as file:
        file["notes"] = [1, 2]
    imported(path, status=3)
    assert "(1):\n  /notes: it has no place" in capsys.readouterr().err
    imported(path, "--strict", status=2)


def test_counts_that_no_float_has_are_refused(refused: Refused, tmp_path: Path) -> None:
    path = cell_ranger(tmp_path / "cells.h5")
    with h5py.File(path, "r+") as file:
        file["matrix/data"][5] = 2**24 + 1
    assert "/X: A count is not exact as float32" in refused(path)


@pytest.mark.parametrize(
    ("is_old", "dtype"), [(False, "<i8"), (True, "<i8"), (False, "<f8")], ids=["v3", "v2", "real"]
)
def test_a_directory_is_what_scanpy_reads(imported: Import, tmp_path: Path, is_old: bool, dtype: str) -> None:
    path = directory(tmp_path / "filtered_feature_bc_matrix", is_old=is_old, dtype=dtype)
    expected = scanpy().read_10x_mtx(path, gex_only=False)
    expected.X = expected.X.tocsr()
    with opened(imported(path)) as file:
        assert_same(file.to_anndata(), expected)
    with opened(imported(path, "--chunk", "8x40")) as file:
        assert file["X"].chunks == (8, 40)


def test_a_matrix_of_an_archive_has_a_prefix(refused: Refused, imported: Import, tmp_path: Path) -> None:
    """GEO puts the sample in front of the names."""
    path = directory(tmp_path / "GSE1_RAW", prefix="GSM1_lung_")
    one = scanpy().read_10x_mtx(path, prefix="GSM1_lung_", gex_only=False)
    one.X = one.X.tocsr()
    with opened(imported(path)) as file:
        assert_same(file.to_anndata(), one)
    directory(path, prefix="GSM2_liver_", is_old=True, dtype="<f8")
    other = scanpy().read_10x_mtx(path, prefix="GSM2_liver_", gex_only=False)
    other.X = other.X.tocsr()
    assert "has 2 matrices: name one of GSM1_lung, GSM2_liver by --part" in refused(path)
    assert "has no GSMmatrix.mtx" in refused(path, "--part", "GSM")
    for part, expected in (("GSM1_lung_", one), ("GSM2_liver", other)):
        with opened(imported(path, "--part", part)) as file:
            assert_same(file.to_anndata(), expected)
    (path / "GSM2_liver_genes.tsv").unlink()
    assert "has no GSM2_liver_features.tsv or GSM2_liver_genes.tsv" in refused(path, "--part", "GSM2_liver")


@pytest.mark.parametrize("count", [1, 3, 5, 8, 12])
def test_an_import_that_was_stopped_goes_on(
    resumed: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.formats.part_upload.MAX_INLINE_BYTES", 500)
    monkeypatch.setattr("hsparse.hdf5.importer.formats.part_upload.BAND_BYTES", 300)
    path = cell_ranger(tmp_path / "cells.h5")
    connection = resumed(path, count, "--requests", "2")
    for _ in range(2):
        with opened(connection) as file:
            assert_same(file.to_anndata(), read_h5(path))
        flags = ("--endpoint", connection.url, "--requests", "2", "--resume")
        assert main(["import", str(path), str(connection.domain), *flags]) == 0


def test_names_with_carriage_returns_and_without_kinds(imported: Import, tmp_path: Path) -> None:
    path = directory(tmp_path / "cells")
    (path / "barcodes.tsv.gz").unlink()
    (path / "features.tsv.gz").unlink()
    (path / "barcodes.tsv").write_bytes("\r\n".join(barcodes()).encode())
    (path / "genes.tsv").write_bytes("".join(f"{one}\tNA\n" for one in ids()).encode())
    with opened(imported(path)) as file:
        found = file.to_anndata()
    assert found.obs_names.tolist() == barcodes()
    assert found.var_names.tolist() == ["NA", *(f"NA-{number}" for number in range(1, GENES))]
    assert found.var["gene_ids"].tolist() == ids()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "has no matrix.mtx, nor with .gz"),
        ("zarr.json", "/: zarr cannot read it"),
        ("__group", "tiledbsoma cannot read it"),
    ],
)
def test_other_directories_are_named(refused: Refused, tmp_path: Path, name: str, said: str) -> None:
    if name:
        (tmp_path / name).touch()
    assert said in refused(tmp_path)


def test_files_of_other_formats_are_named(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "contacts.hic").write_bytes(b"HIC\0")
    assert "is a Juicer .hic file: make a .cool of it" in refused(tmp_path / "contacts.hic")
    assert "is only read from a disk: copy it to a directory" in refused("s3://bucket/a.zarr")


# --- without cells or genes -----------------------------------------------------------------------


def empty_cell_ranger(path: Path, genes: int, cells: int) -> Path:
    with h5py.File(path / "empty.h5", "w") as file:
        matrix = scipy.sparse.csc_array((genes, cells), dtype="<i4")
        for name in ("data", "indices", "indptr"):
            file[f"matrix/{name}"] = getattr(matrix, name)
        file["matrix/shape"] = np.array([genes, cells], "<i4")
        file["matrix/barcodes"] = np.array(barcodes()[:cells], "S")
        for name, values in {"id": ids(), "name": NAMES, "feature_type": KINDS}.items():
            file[f"matrix/features/{name}"] = np.array(values[:genes], "S")
    return path / "empty.h5"


def empty_directory(path: Path, genes: int, cells: int) -> Path:
    for name, lines in {"barcodes": barcodes()[:cells], "features": ids()[:genes]}.items():
        columns = "\tname\tGene Expression" if name == "features" else ""
        (path / f"{name}.tsv").write_text("".join(f"{line}{columns}\n" for line in lines))
    header = "%%MatrixMarket matrix coordinate integer general"
    (path / "matrix.mtx").write_text(f"{header}\n{genes} {cells} 0\n")
    return path


def empty_loom(path: Path, genes: int, cells: int) -> Path:
    with h5py.File(path / "empty.loom", "w") as file:
        file.create_dataset("matrix", (genes, cells), "f4", maxshape=(None, None), chunks=(3, 64))
        file.create_dataset("layers/counts", (genes, cells), "i2", maxshape=(None, None), chunks=(3, 64))
        for group in ("row_graphs", "col_graphs"):
            file.create_group(group)
        for path_of, names in (("row_attrs/Gene", ids()[:genes]), ("col_attrs/CellID", barcodes()[:cells])):
            file.create_dataset(path_of, data=np.array(names, object), dtype=h5py.string_dtype())
        file.create_group("attrs").create_dataset("LOOM_SPEC_VERSION", data="3.0.0")
    return path / "empty.loom"


@pytest.mark.parametrize(("genes", "cells"), [(4, 0), (0, 5), (0, 0), (4, 5)])
@pytest.mark.parametrize("write", [empty_cell_ranger, empty_directory, empty_loom])
def test_files_without_cells_or_genes_are_anndatas_without_them(
    imported: Import, tmp_path: Path, write: Callable[[Path, int, int], Path], genes: int, cells: int
) -> None:
    with opened(imported(write(tmp_path, genes, cells))) as file:
        found = file.to_anndata()
        assert found.shape == found.X.shape == (cells, genes)
        assert (len(found.obs), len(found.var), found.X.nnz) == (cells, genes, 0)


@pytest.mark.parametrize(("genes", "cells"), [(4, 0), (0, 5)])
def test_a_matrix_alone_without_room_is_left_out(
    refused: Refused, tmp_path: Path, genes: int, cells: int
) -> None:
    assert f"A sparse dataset of extent {[genes, cells]} has no elements" in refused(
        empty_directory(tmp_path, genes, cells) / "matrix.mtx"
    )


# --- loom -----------------------------------------------------------------------------------------


def loom(path: Path) -> Path:
    """Write a loom file of version 3 by loompy, with a layer, attributes of several columns and graphs."""
    loompy = pytest.importorskip("loompy", reason="loompy is not installed")
    rng = np.random.default_rng(5)
    matrix, layer = (random_matrix(seed, "<f4", (GENES, CELLS)).toarray() for seed in (1, 2))
    rows = {"Gene": np.array(NAMES, object), "length": np.arange(GENES)}
    columns = {
        "CellID": np.array(barcodes(), object),
        "depth": rng.random(CELLS),
        "embedding": rng.random((CELLS, 2)),
    }
    loompy.create(
        str(path), {"": matrix, "counts": layer.astype("<i2")}, rows, columns, file_attrs={"title": "é"}
    )
    with loompy.connect(str(path)) as file:
        file.col_graphs["knn"] = random_matrix(7, "<f8", (CELLS, CELLS)).tocoo()
    return path


def test_a_loom_file_is_what_anndata_reads(imported: Import, tmp_path: Path) -> None:
    path = loom(tmp_path / "cells.loom")
    expected = anndata.io.read_loom(path, X_name="")
    expected.layers["counts"] = expected.layers["counts"].astype("<i2")  # as it is in the file
    with opened(imported(path)) as file:
        found = file.to_anndata()
        assert file["uns/title"][()] == "é"
    assert elements_of(found.obsp["knn"]) == elements_of(random_matrix(7, "<f8", (CELLS, CELLS)))
    del found.obsp["knn"]
    found.uns.clear()
    assert_same(found, expected)


# --- cooler ---------------------------------------------------------------------------------------


def write_cool(path: str, binsize: int) -> tuple[pd.DataFrame, Any]:
    cooler = pytest.importorskip("cooler", reason="cooler is not installed")
    bins = cooler.binnify(pd.Series({"chr1": 1000, "chr2": 450}), binsize)
    bins["weight"] = np.linspace(0, 1, len(bins))
    found = scipy.sparse.triu(random_matrix(1, "<i4", (len(bins), len(bins)))).tocoo()
    pixels = pd.DataFrame({"bin1_id": found.row, "bin2_id": found.col, "count": found.data})
    pixels["score"] = pixels["count"] / 2
    pixels = pixels.sort_values(["bin1_id", "bin2_id"])
    cooler.create_cooler(path, bins, pixels, columns=["count", "score"], assembly="test", mode="a")
    return bins, found


def assert_cooler(file: hsparse.File, connection: Connection, uri: str) -> None:
    import cooler

    expected = cooler.Cooler(uri)
    bins = expected.bins()[:]
    for name in ("start", "end", "weight"):
        assert np.array_equal(file[f"bins/{name}"][:], bins[name])
    categories = np.array(file["bins/chrom/categories"][:])
    assert categories[file["bins/chrom/codes"][:]].tolist() == bins["chrom"].tolist()
    assert file["chroms/length"][:].tolist() == expected.chromsizes.tolist()
    assert file.attrs["storage-mode"] == "symmetric-upper"
    for name in ("count", "score"):
        pixels = expected.pixels()[:]
        places = zip(pixels["bin1_id"], pixels["bin2_id"], strict=True)
        assert elements_at(connection, f"/pixels/{name}") == dict(zip(places, pixels[name], strict=True))
    assert file["pixels/count"].shape == expected.shape


def test_a_cooler_is_what_cooler_reads(imported: Import, tmp_path: Path) -> None:
    path = tmp_path / "contacts.cool"
    write_cool(str(path), 100)
    connection = imported(path)
    with opened(connection) as file:
        assert_cooler(file, connection, str(path))


def test_one_of_several_resolutions(refused: Refused, imported: Import, tmp_path: Path) -> None:
    path = tmp_path / "contacts.mcool"
    for size in (200, 50):
        write_cool(f"{path}::/resolutions/{size}", size)
    assert "has 2 of the format cooler: name one of 50, 200 by --part" in refused(path)
    for part in ("50", "/resolutions/200"):
        connection = imported(path, "--part", part)
        with opened(connection) as file:
            assert_cooler(file, connection, f"{path}::/resolutions/{part.rpartition('/')[2]}")


# --- damage ---------------------------------------------------------------------------------------


def contacts(path: Path) -> Path:
    write_cool(str(path), 50)
    return path


def replaced(name: str, change: Callable[[Any], Any]) -> Callable[[h5py.File], None]:
    """Return what puts other values into the place of a dataset."""

    def run(file: h5py.File) -> None:
        values = change(file[name][()])
        del file[name]
        file[name] = values

    return run


def at(place: int, value: Any) -> Callable[[Any], Any]:
    """Return what changes one value."""

    def run(values: Any) -> Any:
        values[place] = value
        return values

    return run


DAMAGES: list[tuple[Callable[[Path], Path], str, Callable[[Any], Any], str]] = [
    (cell_ranger, "matrix/shape", at(0, GENES + 1), "/matrix/features/feature_type: It has the extent"),
    (cell_ranger, "matrix/shape", at(1, CELLS - 1), "/matrix/data: The 61 pointers do not ascend"),
    (cell_ranger, "matrix/shape", at(0, -1), "/matrix/shape: It is -1 x 60"),
    (cell_ranger, "matrix/shape", lambda _: [GENES], "/matrix/shape: It has the extent [1]"),
    (cell_ranger, "matrix/indptr", at(5, 2000), "/matrix/data: The 61 pointers do not ascend"),
    (cell_ranger, "matrix/indices", at(7, GENES), "/X: "),
    (cell_ranger, "matrix/indices", at(7, -1), "/X: An index of the matrix is negative"),
    (
        cell_ranger,
        "matrix/indices",
        lambda values: values * 0,
        "/X: 180 of 240 elements have the coordinates",
    ),
    (cell_ranger, "matrix/indices", lambda values: values / 2, "indices of the matrix are no integers"),
    (cell_ranger, "matrix/data", lambda values: values[1:], "/matrix/data: The matrix has 239 values"),
    (cell_ranger, "matrix/barcodes", lambda values: values[1:], "/matrix/barcodes: It has the extent [59]"),
    (cell_ranger, "matrix/barcodes", at(3, b"\xff"), "/matrix/barcodes: It has text that is not UTF-8"),
    (cell_ranger, "matrix/features/id", lambda values: values[1:], "/matrix/features/id: It has the extent"),
    (loom, "matrix", lambda values: values[0], "/matrix: It has 1 dimensions"),
    (loom, "matrix", lambda values: values.astype("S3"), "/matrix: Its values are no numbers"),
    (loom, "matrix", lambda values: values[1:], "/layers/counts: It has the extent [40, 60]"),
    (loom, "layers/counts", lambda values: values.T, "/layers/counts: It has the extent [60, 40]"),
    (loom, "row_attrs/Gene", lambda values: values[1:], "/row_attrs/Gene: The extent is [39]"),
    (loom, "col_graphs/knn/a", lambda values: values + CELLS, "/obsp/knn: "),
    (contacts, "bins/start", lambda values: values[1:], "/bins: The columns have different lengths"),
    (
        contacts,
        "bins/chrom",
        lambda values: values.astype("i4") + 2,
        "/bins/chrom: A bin has the number of a chromosome",
    ),
    (contacts, "pixels/bin1_id", lambda values: values[1:], "/pixels/count: The matrix has"),
    (contacts, "pixels/bin2_id", lambda values: values + 29, "/pixels/"),
    (contacts, "pixels/bin1_id", lambda values: values * 0, "have the coordinates of another element"),
]


@pytest.mark.parametrize(("write", "name", "change", "said"), DAMAGES)
def test_parts_that_do_not_fit_are_named(
    refused: Refused,
    tmp_path: Path,
    write: Callable[[Path], Path],
    name: str,
    change: Callable[[Any], Any],
    said: str,
) -> None:
    path = write(tmp_path / "damaged.h5")
    with h5py.File(path, "r+") as file:
        replaced(name, change)(file)
    assert said in refused(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("barcodes.tsv", b"A\nB\n", "barcodes.tsv has 2 lines"),
        ("barcodes.tsv", b"\xff\n" * CELLS, "barcodes.tsv is not UTF-8"),
        ("features.tsv", b"one\n" * GENES, "features.tsv has one column"),
        (
            "features.tsv",
            b"a\tb\n" * (GENES - 1) + b"a\n",
            "features.tsv has 40 lines, or lines with different numbers of columns",
        ),
        ("barcodes.tsv.gz", b"\x1f\x8b\x08 no", "barcodes.tsv.gz is damaged"),
        (
            "matrix.mtx",
            b"%%MatrixMarket matrix coordinate integer general\n40 60 1\n41 1 5\n",
            "an index beyond",
        ),
    ],
)
def test_a_damaged_directory_is_refused(
    refused: Refused, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = directory(tmp_path / "cells")
    (path / f"{name.removesuffix('.gz')}.gz").unlink()
    (path / name).write_bytes(content)
    assert said in refused(path)


def cell_elements(path: Path) -> Any:
    with h5py.File(path) as file:
        parts = [file[f"matrix/{name}"][()] for name in ("data", "indices", "indptr")]
        return scipy.sparse.csr_array(tuple(parts), tuple(file["matrix/shape"][()][::-1])).astype("<f4")


def loom_elements(path: Path) -> Any:
    with h5py.File(path) as file:
        return scipy.sparse.csr_array(file["matrix"][()].T)


def contact_elements(path: Path) -> Any:
    with h5py.File(path) as file:
        places = file["pixels/bin1_id"][()], file["pixels/bin2_id"][()]
        count = len(file["bins/chrom"])
        return scipy.sparse.coo_array((file["pixels/count"][()], places), (count, count))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("write", "read", "name"),
    [
        (cell_ranger, cell_elements, "X"),
        (loom, loom_elements, "X"),
        (contacts, contact_elements, "pixels/count"),
    ],
)
def test_a_file_with_other_bytes_is_refused_or_read_as_others_do(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    write: Callable[[Path], Path],
    read: Callable[[Path], Any],
    name: str,
    seed: int,
) -> None:
    """Bytes of values have no checksum, so that others read the changed ones, too."""
    path = write(tmp_path / "damaged.h5")
    change_bytes(path, np.random.default_rng(seed))
    domain = f"/home/admin/{write.__name__}-{seed}-damaged.h5"
    if main(["import", str(path), domain, "--endpoint", url]) == 2:
        assert "/" in capsys.readouterr().err
        return
    try:
        expected = elements_of(read(path))
    except (KeyError, OSError, RuntimeError, TypeError, ValueError):
        return  # others cannot read all of it
    with Connection(url, domain) as connection, hsparse.open(f"{url}{domain}") as file:
        if name not in file:
            assert file.attrs.get("encoding-type") is None  # no such file any more, imported as it is
            return
        assert str(sorted(elements_at(connection, f"/{name}").items())) == str(sorted(expected.items()))
