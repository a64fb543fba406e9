"""`python -m hsparse.storage.put_worker ROOT FSYNC SOCKET`: a process of `PutProcesses`."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

from hsparse.errors import HsparseError
from hsparse.storage.posix import PosixStore
from hsparse.storage.put_processes import PACKET, decode_put, encode_reply


def serve(connection: socket.socket, store: PosixStore) -> None:
    """Put what is asked for, one after the other, until the other end is closed."""
    while message := connection.recv(PACKET):
        number, condition, key, etag, data = decode_put(message)
        try:
            result: str | HsparseError = store.put_now(key, data, condition, etag)
        except HsparseError as error:
            result = error
        try:
            connection.send(encode_reply(number, result))
        except BrokenPipeError:
            return  # nobody is left to be told


def main() -> None:
    """Serve until the process that started this one closes its end, or is gone."""
    # Ctrl-C is for the server, which lets us finish; it reaches its whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    root, fsync, descriptor = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as connection:
        serve(connection, PosixStore(Path(root), fsync=fsync == "1", workers=1))


if __name__ == "__main__":
    main()
