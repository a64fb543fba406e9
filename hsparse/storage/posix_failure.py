"""What an error of the file system means to the caller of a posix store."""

from __future__ import annotations

import errno

from hsparse.errors import BadRequest, HsparseError, StoreFailed

REMEDIES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "raise the quota of its file system",
    errno.EIO: "check the disk",
    errno.EROFS: "mount its file system for writing",
    errno.EACCES: "give this process the right to read and write there",
    errno.EPERM: "give this process the right to read and write there",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
}


def failure(error: OSError, key: str, store: str) -> HsparseError:
    """Return the error of an operation on `key` in the store of this name."""
    code = error.errno or 0
    if code == errno.ENAMETOOLONG:
        return BadRequest(f"The path of {key!r} is too long for the file system; use a shorter key.")
    remedy = REMEDIES.get(code, "see the system's log")
    return StoreFailed(f"The store {store!r} failed on {key!r} ({error.strerror}); {remedy}.")
