"""`hsparse concat`: concatenate the AnnData of many domains to a new domain."""

from __future__ import annotations

import argparse
import sys
import warnings
from contextlib import ExitStack

from hsparse.cli.tree.server_tree import ServerTree, normal_path, require_place
from hsparse.cli.tree.tree_command import PATTERN_HELP, Output, add_tree_arguments
from hsparse.client.errors import InvalidValue
from hsparse.client.file import File
from hsparse.client.integrations.anndata.concatenation import MERGES, concat
from hsparse.client.opening import open_connection

ABOUT = f"""\
Concatenate the AnnData of many domains, in their order, as anndata.concat does.

  hsparse concat /home/ann/a.h5ad /home/ann/b.h5ad --to /home/ann/both.h5ad
  hsparse concat '/home/ann/runs/*.h5ad' --to /home/ann/all.h5ad --join outer --label run
  hsparse concat a.h5ad b.h5ad --to c.h5ad --label batch --keys control,treated --index-unique -

X, layers and raw stay in the sources: the new domain has virtual datasets over them. Keep the sources, and give the
new domain's readers the right to read them. obs, obsm and var are written, uns and obsp with --uns-merge and
--pairwise. With --copy, matrices are also written; they are sent to this machine and back. In a path, {PATTERN_HELP}.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `hsparse concat`; the parsed arguments have the function `run`."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a domain with an AnnData")
    parser.add_argument("--to", required=True, metavar="PATH", help="the domain to make")
    parser.add_argument(
        "--join",
        choices=("inner", "outer"),
        default="inner",
        help="keep genes, columns of obs, layers and obsm that all sources have, or that any has (default: inner)",
    )
    parser.add_argument(
        "--merge",
        choices=MERGES,
        help="which columns of var, varm and varp to keep: columns with equal values (same), ... (default: none)",
    )
    parser.add_argument(
        "--uns-merge", choices=MERGES, help="which entries of uns to keep, as with --merge (default: none)"
    )
    parser.add_argument(
        "--fill-value",
        type=float,
        metavar="NUMBER",
        help="the value of dense matrices where a source has none",
    )
    parser.add_argument(
        "--pairwise", action="store_true", help="keep obsp; it has no elements between different sources"
    )
    parser.add_argument("--label", metavar="COLUMN", help="add a column to obs with the source of each cell")
    parser.add_argument(
        "--keys", metavar="KEY,...", help="the values of that column for the sources (default: 0,1,...)"
    )
    parser.add_argument(
        "--index-unique", metavar="TEXT", help="add this text and the key to the name of each cell"
    )
    parser.add_argument("--copy", action="store_true", help="also write the matrices")
    parser.add_argument("--overwrite", action="store_true", help="replace the domain if it exists")
    add_tree_arguments(parser, ABOUT, concat_domains)


def concat_domains(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Concatenate the AnnData of all source domains into the new domain `args.to`."""
    paths = [require_place(entry).path for text in args.sources for entry in tree.expand(text)]
    with ExitStack() as stack:
        files = [open_connection(stack.enter_context(tree.patient(path))) for path in paths]
        for path, file in zip(paths, files, strict=True):
            if not isinstance(file, File):
                raise InvalidValue(f"{path} is a folder: name domains, such as '{path}/*.h5ad'.")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            made = concat(
                [file for file in files if isinstance(file, File)],
                to := normal_path(args.to),
                join=args.join,
                merge=args.merge,
                uns_merge=args.uns_merge,
                fill_value=args.fill_value,
                pairwise=args.pairwise,
                label=args.label,
                keys=args.keys.split(",") if args.keys is not None else None,
                index_unique=args.index_unique,
                copy=args.copy,
                overwrite=args.overwrite,
                progress=False if args.json else None,
            )
        made.close()
    for one in told:
        print(f"hsparse: {one.message}", file=sys.stderr)
    output.report("concatenated", ", ".join(paths), to=to)
