"""h5pyd's command-line tools as the user admin: several command lines, each in a process of its own.

The processes are forks of one that has imported h5pyd, which takes most of the time of a tool that does little. It
is started for the first tool and lasts as long as this process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import subprocess
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any

import hdf5plugin
from h5pyd.config import Config

REPOSITORY = Path(__file__).parents[2]
PROGRAM = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from {__name__} import main; main()"
Ended = subprocess.CompletedProcess[str]


def run_tools(url: str, *commands: list[str], cwd: Path | None = None) -> list[Ended]:
    """Run tools against the server at `url`, one after the other, whatever becomes of them.

    A command is the tool's name, or that of a module with a `main`, and its arguments.
    """
    lines = [[_module(tool), "-e", url, "-u", "admin", "-p", "any", *rest] for tool, *rest in commands]
    process = _template()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([url, str(cwd or Path.cwd()), lines]), file=process.stdin, flush=True)
    return [subprocess.CompletedProcess(**ended) for ended in json.loads(process.stdout.readline())]


def run_tool(url: str, tool: str, *arguments: str, cwd: Path | None = None) -> Ended:
    """Run one tool."""
    return run_tools(url, [tool, *arguments], cwd=cwd)[0]


@cache
def _template() -> subprocess.Popen[str]:
    """Start the process whose forks run the tools."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "HDF5_PLUGIN_PATH": hdf5plugin.PLUGIN_PATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)  # it ends when its input does
    return process


def main() -> None:
    """Run the command lines that each line of standard input lists as JSON; print how they ended, as JSON too."""
    for line in sys.stdin:
        url, folder, commands = json.loads(line)
        modules = {name: import_module(name) for name, *_ in commands}
        gc.freeze()
        ended = [_run(modules[name], [name, *rest], url, folder) for name, *rest in commands]
        print(json.dumps(ended), flush=True)


def _module(tool: str) -> str:
    return tool if "." in tool else f"h5pyd._apps.{tool}"


def _run(module: ModuleType, command: list[str], url: str, folder: str) -> dict[str, Any]:
    with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.chdir(folder)
            Config(
                hs_endpoint=url, hs_username="admin", hs_password="any"
            )  # some tools disregard their flags
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os._exit(_status(module, command))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (out, errors):
            file.seek(0)
        return {"args": command, "returncode": status, "stdout": out.read(), "stderr": errors.read()}


def _status(module: ModuleType, command: list[str]) -> int:
    """Run a tool as Python runs a script, but for the clearing up after it."""
    sys.argv = command
    try:
        module.main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 - whatever ends it is printed and becomes its status
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
