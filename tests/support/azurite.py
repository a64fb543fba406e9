"""Azurite, Azure's own emulator of Blob Storage, with everything in memory."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

from tests.support.find_program import find_program

PROGRAMS = ("azurite-blob", "node")
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's account and its key, which Azure's documentation names."""
VERSION = "2023-11-03"


@contextmanager
def azurite_server(host: str = "127.0.0.1") -> Iterator[str]:
    """Run the emulator while the context lasts, whose value is the URL of its account."""
    program = find_program("azurite-blob")
    assert program is not None
    options = ["--blobHost", host, "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"]
    command = [program, *options, "--silent", "--disableTelemetry"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=process.stdout.read, daemon=True)  # a full pipe would stop it
        try:
            url = _url(process)
            reader.start()
            yield f"{url}/{ACCOUNT}"
        finally:
            process.terminate()
            if reader.ident is not None:
                reader.join()


def _url(process: subprocess.Popen[str]) -> str:
    """Return the URL that the emulator names once it listens."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(r"listens on (http://[\d.:]+)", line):
            return found[1]
    raise RuntimeError("Azurite did not start: " + "".join(lines))


def azure_config(endpoint: str) -> dict[str, str]:
    """Return obstore's configuration of the emulator."""
    return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}


def azure_variables(endpoint: str) -> dict[str, str]:
    """Return the same as variables of the environment."""
    return {f"AZURE_STORAGE_{name.upper()}": value for name, value in azure_config(endpoint).items()}


def make_container(endpoint: str, name: str) -> None:
    """Create a container, which obstore cannot (Azure Storage REST, "Authorize with Shared Key")."""
    date = formatdate(usegmt=True)
    signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{VERSION}\n"
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": VERSION,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    request = urllib.request.Request(
        f"{endpoint}/{name}?restype=container", method="PUT", headers=headers, data=None
    )
    with urllib.request.urlopen(request) as reply:
        assert reply.status == 201, f"Azurite refused to make the container {name!r}"
