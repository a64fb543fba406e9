"""Notebooks of examples, run without Jupyter: cells of code, what they print and show, and their pictures.

    python -m tests.examples.notebook STORE examples/anndata.ipynb

runs a notebook with a server over the directory STORE, and keeps in it what its cells print and show, which the tests
compare with.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from tests.docs_pages import SERVER
from tests.support.server_process import server_process

DPI = 60


@dataclass(frozen=True, slots=True)
class CellOutput:
    """What a cell prints, with the text of its last expression, and its pictures as PNG."""

    text: str
    pictures: tuple[bytes, ...]


def read_notebook(path: Path) -> Any:
    return json.loads(path.read_text())


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored_output(cell: Any) -> CellOutput:
    """Return the output that a notebook has of a cell."""
    text, pictures = "", []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            text += "".join(output["text"])
        elif "image/png" in output["data"]:
            pictures.append(base64.b64decode("".join(output["data"]["image/png"])))
        else:
            text += "".join(output["data"]["text/plain"]) + "\n"
    return CellOutput(text, tuple(pictures))


def run_cells(notebook: Any, server: str) -> list[CellOutput]:
    """Run the cells one after the other in one namespace; `server` takes the place of the one in them."""
    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run("".join(cell["source"]).replace(SERVER, server), names) for cell in code_cells(notebook)]


def _run(source: str, names: dict[str, Any]) -> CellOutput:
    tree = ast.parse(source)
    is_shown = isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";")  # as in IPython
    last = tree.body.pop() if is_shown else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            if value is not None:
                print(repr(value))
    return CellOutput(printed.getvalue(), tuple(_pictures()))


def _pictures() -> list[bytes]:
    """Return the figures that are open, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    found = []
    for number in pyplot.get_fignums():
        data = io.BytesIO()
        pyplot.figure(number).savefig(data, format="png", dpi=DPI, bbox_inches="tight")
        found.append(data.getvalue())
    pyplot.close("all")
    return found


def keep_output(path: Path, outputs: list[CellOutput]) -> None:
    """Write a notebook with what its cells gave."""
    notebook = read_notebook(path)
    for number, (cell, found) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell["execution_count"] = number
        cell["outputs"] = []
        if found.text:
            lines = found.text.splitlines(keepends=True)
            cell["outputs"].append({"name": "stdout", "output_type": "stream", "text": lines})
        for picture in found.pictures:
            data = {"image/png": base64.b64encode(picture).decode(), "text/plain": ["<Figure>"]}
            cell["outputs"].append({"output_type": "display_data", "data": data, "metadata": {}})
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def main(names: list[str], root: Path) -> None:
    paths = [Path(name).absolute() for name in names]
    with server_process("--root", str(root), "--no-fsync") as server:
        for path in paths:
            os.chdir(path.parent)
            keep_output(path, run_cells(read_notebook(path), server.url))


if __name__ == "__main__":
    main(sys.argv[2:], Path(sys.argv[1]))
