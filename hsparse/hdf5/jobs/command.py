"""`hsparse job`: have a server import, export or copy a domain."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from hsparse.cli import progress
from hsparse.cli.connection_flags import add_server_flags, connector
from hsparse.cli.progress import ProgressForm
from hsparse.cli.terminal_text import terminal_text
from hsparse.client.connection import Connection, Json
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import HsparseError
from hsparse.hdf5.jobs.job import COUNT, OPTIONS, JobKind
from hsparse.wire.message import Failure

POLL_SECONDS = 1.0
ABOUT = """\
Have a server import or export a file, if its setting job_places allows the file's place, or copy a domain.

  hsparse job import s3://beamline/run.h5 /home/ada/run.h5 --option resume --user ada
  hsparse job export /home/ada/run.h5 s3://exports/run.h5 --option layout=structured --wait
  hsparse job copy /home/ada/run.h5 /home/ada/copy.h5 --wait
  hsparse job list
  hsparse job wait j-...
"""
JobAction = Callable[[argparse.Namespace, RetryingClient, Connection], int]


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the subcommands of `hsparse job`; parsed arguments have `run`."""
    parser.description = ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    begin = (
        _command(commands, "import", "begin an import, and print its id", _begin, "source", "domain"),
        _command(commands, "export", "begin an export, and print its id", _begin, "domain", "target"),
        _command(commands, "copy", "begin a copy, and print its id", _begin, "source", "domain"),
    )
    for kind, one in zip(JobKind, begin, strict=True):
        one.set_defaults(kind=kind)
        one.add_argument(
            "--option",
            action="append",
            default=[],
            metavar="NAME[=VALUE]",
            help="an option of the job; repeatable",
        )
        one.add_argument(
            "--wait", action="store_true", help="wait until the job has ended, as hsparse job wait does"
        )
    _command(commands, "list", "list jobs: id, status, kind, domain", _list)
    _command(commands, "show", "show a job's record in JSON", _show, "id")
    _command(commands, "wait", "wait until a job has ended; exit with status 2 if it failed", _wait, "id")
    _command(commands, "cancel", "cancel a job, or delete the record of a job that has ended", _cancel, "id")


def run(args: argparse.Namespace) -> int:
    """Run a subcommand; raises the error of the server, or of the job for which the subcommand waited."""
    opening = connector(args)
    connections: list[Connection] = []

    def connect() -> Connection:
        connections.append(opening())
        return connections[-1]

    server = RetryingClient(connect)
    try:
        command: JobAction = args.job_command
        return command(args, server, connect())
    finally:
        for connection in connections:
            connection.close()


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    command: JobAction,
    *arguments: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    for argument in arguments:
        parser.add_argument(argument, metavar=argument.upper())
    add_server_flags(parser)
    parser.set_defaults(run=run, job_command=command)
    return parser


def _begin(args: argparse.Namespace, server: RetryingClient, connection: Connection) -> int:
    body = {"kind": args.kind, "domain": args.domain, "options": _options(JobKind(args.kind), args.option)}
    for name in ("source", "target"):
        if name in args:
            body[name] = getattr(args, name)
    # Not by `server`, which may repeat the request: a repeated request would begin a second job.
    args.id = connection.json("POST", "/jobs", body)["id"]
    print(args.id, flush=True)
    return _wait(args, server, connection) if args.wait else 0


def _list(args: argparse.Namespace, server: RetryingClient, connection: Connection) -> int:
    marker = None
    while jobs := server.json("GET", "/jobs", Marker=marker)["jobs"]:
        for job in jobs:
            print(job["id"], f"{job['status']:9}", job["kind"], job["domain"])
        marker = jobs[-1]["id"]
    return 0


def _show(args: argparse.Namespace, server: RetryingClient, connection: Connection) -> int:
    print(json.dumps(server.json("GET", f"/jobs/{args.id}"), indent=2))
    return 0


def _wait(args: argparse.Namespace, server: RetryingClient, connection: Connection) -> int:
    with progress.show_progress(ProgressForm.BAR, args.id) as shown:
        while "ended" not in (job := server.json("GET", f"/jobs/{args.id}")) and job["status"] != "lost":
            shown.update(job["done"], job.get("total", 0))
            time.sleep(POLL_SECONDS)
    for message in job.get("messages", ()):
        print(terminal_text(message, sys.stderr), file=sys.stderr)
    if job["status"] != "done":
        raise _failure(job)
    return 0


def _cancel(args: argparse.Namespace, server: RetryingClient, connection: Connection) -> int:
    connection.json("DELETE", f"/jobs/{args.id}")
    return 0


def _failure(job: Json) -> HsparseError:
    """Return the error of a job that ended without success, or was lost."""
    error = job.get("error") or {"kind": "internal", "message": f"The job {job['id']} was {job['status']}."}
    return Failure(error["kind"], error["message"]).error()


def _options(kind: JobKind, words: list[str]) -> Json:
    """Return a dict that maps each NAME of `NAME=VALUE` words to its value: a text, a number, or True without `=`."""
    found: Json = {}
    for name, equals, value in (word.partition("=") for word in words):
        is_number = OPTIONS[kind].get(name) is COUNT and value.isascii() and value.isdigit()
        found[name] = (int(value) if is_number else value) if equals else True
    return found
