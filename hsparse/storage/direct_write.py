"""Large objects written past the page cache, where the file system can (O_DIRECT).

What is put is synced at once and is in the data node's own cache: copies in the page cache are of little use, and
their making costs more than the write itself.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from contextlib import suppress

from hsparse.storage.object_store import Buffer
from hsparse.storage.posix_file import write_all

LEAST = 256 * 1024
"""Bytes of the smallest object that is written so."""
BLOCK = 4096
"""What addresses in memory and in the file, and lengths, are multiples of."""
STEP = 512 * 1024
"""Bytes of a write, and of the memory that each thread copies them to, which is aligned."""
DIRECT = getattr(os, "O_DIRECT", 0)

_threads = threading.local()


def write_object(file: int, data: Buffer) -> None:
    """Write all of `data` from the start of a new file, in whichever way suits its size; not synced."""
    view = memoryview(data).cast("B")
    if len(view) < LEAST or not DIRECT:
        write_all(file, view)
        return
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    done = 0
    with suppress(OSError):  # a file system that cannot: the rest, perhaps all, is written as usual
        fcntl.fcntl(file, fcntl.F_SETFL, flags | DIRECT)
        done = _write_blocks(file, view)
    fcntl.fcntl(file, fcntl.F_SETFL, flags)
    os.lseek(file, done, os.SEEK_SET)
    write_all(file, view[done:])


def _write_blocks(file: int, view: memoryview) -> int:
    """Write whole blocks, as many as go; return how many bytes that was."""
    done, whole = 0, len(view) - len(view) % BLOCK
    with memoryview(_aligned()) as aligned:
        while done < whole:
            count = min(STEP, whole - done)
            aligned[:count] = view[done : done + count]
            try:
                written = os.write(file, aligned[:count])
            except OSError:
                return done
            done += written - written % BLOCK
            if written < count:
                return done
    return done


def _aligned() -> mmap.mmap:
    memory: mmap.mmap | None = getattr(_threads, "memory", None)
    if memory is None:
        memory = _threads.memory = mmap.mmap(-1, STEP)
    return memory
