"""A store in a container of Azure Blob Storage or a bucket of Google Storage, by obstore.

Azure compares etags. Google compares generations, which its listings do not have; so the etag is Google's, and an
update is made on the generation that had it: the one that was read or put here last, else the one of a look. A put
on another state is refused either way.

A put whose reply is lost is settled as in a bucket of S3 (`hsparse.storage.s3.s3_store`): by a mark in the metadata.
obstore's own repetitions are off, as they hide whether a reply was lost. It has no conditional delete.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import quote

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore

from hsparse.errors import (
    BadRequest,
    HsparseError,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    Unsupported,
)
from hsparse.storage.bucket_client import BucketClient, Retry
from hsparse.storage.delegating_store import delete_each
from hsparse.storage.object_store import (
    Buffer,
    Entry,
    Page,
    Stored,
    check_key,
    check_range,
    is_key,
    no_urls,
    resolve_range,
)

PUT_MARK = "hsparseput"
"""The metadata that tells which conditional put an object is of. Azure has names of letters, digits and `_` alone."""
GENERATIONS = 16_384
"""Keys of which the last generation is remembered."""
CONNECT_SECONDS = 5

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Cloud:
    """What obstore does differently for a service."""

    make: Any
    suffixes: bool
    """Whether the end of an object can be read without its size."""
    offsets: bool
    """Whether a listing begins at a key; otherwise it is read from its beginning."""
    generations: bool
    """Whether puts are conditional on generations, not on etags."""
    credentials: str
    rights: str


CLOUDS = {
    "az": Cloud(
        AzureStore,
        suffixes=False,
        offsets=False,
        generations=False,
        credentials="AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or an identity of the machine",
        rights="Storage Blob Data Contributor",
    ),
    "gs": Cloud(
        GCSStore,
        suffixes=True,
        offsets=True,
        generations=True,
        credentials="GOOGLE_APPLICATION_CREDENTIALS, or a service account of the machine",
        rights="Storage Object User",
    ),
}


class RequestFailed(Exception):
    """A request that failed: the status of the reply, 0 if there was none, and the service's code, if any.

    obstore tells these in the text of its errors, which has the URL, and so may have a signature.
    """

    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code


class ObstoreStore(BucketClient):
    """An `ObjectStore` in the bucket `az://container` or `gs://bucket`; `open` it first, or use it as a context.

    Account, credentials and endpoint are read from the environment, as obstore does, unless `config` has them;
    `unsigned`, no credentials are looked for. `settings` are those of a `BucketClient`.
    """

    _failures = (RequestFailed, TimeoutError)

    def __init__(
        self, url: str, *, config: dict[str, Any] | None = None, unsigned: bool = False, **settings: Any
    ) -> None:
        scheme, _, name = url.partition("://")
        super().__init__(name, **settings)
        self._url = url
        self._cloud = CLOUDS[scheme]
        self._config = {**(config or {}), **({"skip_signature": True} if unsigned else {})}
        self._generations: OrderedDict[str, tuple[str, str]] = OrderedDict()

    async def open(self) -> Self:
        """Create the pooled client; nothing is sent yet."""
        options = {
            "allow_http": True,  # of an endpoint that says so
            "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, self._deadline / 3)),
            "read_timeout": timedelta(seconds=self._deadline / 3),
            "timeout": timedelta(seconds=self._deadline),
        }
        try:
            self._client = self._cloud.make(
                self.name, config=self._config, client_options=options, retry_config={"max_retries": 0}
            )
        except (BaseError, ValueError) as error:
            raise Misconfigured(
                f"The bucket {self._url!r} cannot be used ({type(error).__name__}); set {self._cloud.credentials}."
            ) from None
        return self

    async def close(self) -> None:
        self._client = None

    # --- reads --------------------------------------------------------------------------------------

    async def get(self, key: str) -> Stored:
        check_key(key)
        return await self._run(key, lambda: self._get(key))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        check_key(key)
        check_range(key, start, length)
        if start >= 0:
            span: Any = {"offset": start} if length is None else (start, start + length)
            return await self._run(key, lambda: self._get(key, span))
        if self._cloud.suffixes:
            return await self._run(key, lambda: self._get(key, {"suffix": -start}))
        return await self._get_end(key, start)

    async def _get_end(self, key: str, start: int) -> Stored:
        """Read from `start` bytes before the end, in two requests, until the object has one size in both."""
        while True:
            size = int((await self._run(key, lambda: self._look(key))).meta["size"])
            first, count = resolve_range(key, start, None, size)
            try:
                found = await self.get_range(key, first, count)
            except BadRequest:  # it is shorter now
                continue
            if found.size == size:
                return found

    async def presigned(self, key: str, seconds: int) -> str:
        check_key(key)
        if self._cloud is CLOUDS["az"] and quote(key) != key:  # obstore signs the quoted key, Azure the key
            raise no_urls(self.name)
        sign = partial(obstore.sign_async, self._client, "GET", key, timedelta(seconds=seconds))
        try:
            return await self._run(key, lambda: _ask(sign()))
        except (Misconfigured, Unsupported):  # such credentials cannot sign
            raise no_urls(self.name) from None

    # --- changes ------------------------------------------------------------------------------------

    async def put(self, key: str, data: Buffer) -> str:
        check_key(key)
        content = bytes(data)
        return await self._run(key, lambda: self._put(key, content))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._put_if(key, data, None)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._put_if(key, data, etag)

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await self._run(key, lambda: _ask(obstore.delete_async(self._client, key)))
        except NotFound:
            return

    async def delete_if_match(self, key: str, etag: str) -> None:
        check_key(key)
        raise Unsupported(f"The bucket {self._url!r} has no conditional delete.")

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)

    async def _put_if(self, key: str, data: Buffer, etag: str | None) -> str:
        """Put on the condition that the object has the etag, or that there is none."""
        check_key(key)
        content = bytes(data)
        mark = self._clock.token(16).hex()

        async def send() -> str:
            mode = "create" if etag is None else await self._condition(key, etag)
            return await self._put(key, content, mode=mode, attributes={PUT_MARK: mark})

        async def settle(failed_condition: HsparseError, uncertain: bool) -> str:
            try:
                found = await self._look(key)
                if found.attributes.get(PUT_MARK) == mark:
                    return self._etag(key, found.meta)
            except RequestFailed as error:
                if not isinstance(self._verdict(error, key), NotFound):
                    raise
            try:
                raise failed_condition
            finally:
                del failed_condition  # the error has this frame, and would have itself

        return await self._run(key, send, settle)

    async def _condition(self, key: str, etag: str) -> dict[str, str]:
        """Return obstore's condition of an update."""
        if not self._cloud.generations:
            return {"e_tag": f'"{etag}"'}
        if (known := self._generations.get(key)) is None or known[0] != etag:
            self._etag(key, (await self._look(key)).meta)
            known = self._generations[key]
        if known[0] != etag:
            raise RequestFailed(412)
        return {"version": known[1]}

    # --- one request --------------------------------------------------------------------------------

    async def _get(self, key: str, span: Any = None) -> Stored:
        reply = await _ask(
            obstore.get_async(self._client, key, options={} if span is None else {"range": span})
        )
        data = bytes(await _ask(reply.bytes_async()))
        return Stored(data, self._etag(key, reply.meta), reply.meta["size"])

    async def _look(self, key: str) -> Any:
        """Return what there is of an object besides its bytes."""
        return await _ask(obstore.get_async(self._client, key, options={"head": True}))

    async def _put(self, key: str, content: bytes, **options: Any) -> str:
        put = obstore.put_async(self._client, key, content, use_multipart=False, **options)
        return self._etag(key, await _ask(put))

    def _etag(self, key: str, meta: Any) -> str:
        """Return the etag of a reply about an object, and remember which generation had it."""
        etag = str(meta["e_tag"]).strip('"')
        if self._cloud.generations:
            self._generations[key] = etag, str(meta["version"])
            self._generations.move_to_end(key)
            if len(self._generations) > GENERATIONS:
                self._generations.popitem(last=False)
        return etag

    # --- listings -----------------------------------------------------------------------------------

    def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
        return self._list_folder(prefix, start_after) if delimiter else self._list(prefix, start_after)

    async def _list(self, prefix: str, start_after: str) -> AsyncIterator[Page]:
        """List what begins with `prefix`: obstore lists what is below a folder."""
        folder, _, rest = prefix.rpartition("/")
        if folder and not is_key(folder):
            return
        after, stream = start_after, None

        def begin() -> Any:
            offset = max(after, prefix[:-1] if rest else "").rstrip("/")
            at = {"offset": offset} if self._cloud.offsets and is_key(offset) else {}
            return obstore.list(self._client, folder or None, chunk_size=self._page_size, **at)

        async def send() -> Any:
            nonlocal stream, start_after
            stream, start_after = (begin(), after) if stream is None else (stream, start_after)
            try:
                return await _ask(anext(stream, None))
            except BaseException:
                stream = None
                raise

        while (found := await self._run(prefix, send)) is not None:
            entries = tuple(
                entry
                for entry in map(_entry, found)
                if entry.key.startswith(prefix) and entry.key > start_after and is_key(entry.key)
            )
            if entries:
                yield Page(entries)
                after = entries[-1].key
            if _is_past(found[-1]["path"], prefix):
                return

    async def _list_folder(self, prefix: str, start_after: str) -> AsyncIterator[Page]:
        """List one level, which obstore reads whole, page by page."""
        folder = prefix.rpartition("/")[0]
        if folder and not is_key(folder):
            return
        found = await self._run(
            prefix, lambda: _ask(obstore.list_with_delimiter_async(self._client, folder or None))
        )
        names: dict[str, Entry | None] = {f"{name}/": None for name in found["common_prefixes"]}
        names |= {entry.key: entry for entry in map(_entry, found["objects"])}
        wanted = [
            name
            for name in sorted(names)
            if name.startswith(prefix) and name > start_after and is_key(name.removesuffix("/"))
        ]
        for first in range(0, len(wanted), self._page_size):
            page = wanted[first : first + self._page_size]
            yield Page(
                tuple(entry for name in page if (entry := names[name]) is not None),
                tuple(name for name in page if names[name] is None),
            )

    # --- failures -----------------------------------------------------------------------------------

    def _verdict(self, error: Exception, key: str) -> HsparseError | Retry:
        if not isinstance(error, RequestFailed):
            return Retry.UNCERTAIN  # the operation's time is over
        status, code, bucket = error.status, error.code, self._url
        if code in ("ContainerNotFound", "NoSuchBucket"):
            return Misconfigured(f"There is no bucket {bucket!r}; create it, or name another one.")
        if status in _UNCERTAIN:
            return Retry.UNCERTAIN
        if status == 404:
            return NotFound(f"There is no object {key!r} in {bucket!r}.")
        if status == 412:
            return PreconditionFailed(f"{key!r} is no longer in the state it was read in; read it again.")
        if status == 416:
            return BadRequest(f"The range of {key!r} starts beyond the object's end.")
        if status == 401:
            return Misconfigured(
                f"There are no usable credentials for the bucket {bucket!r}; set {self._cloud.credentials}."
            )
        if status == 403:
            return Misconfigured(
                f"The bucket {bucket!r} denies access to {key!r} ({code}); check the credentials, and grant "
                f"{self._cloud.rights!r}."
            )
        if status == 501:
            return Unsupported(f"The bucket {bucket!r} does not do what {key!r} needs.")
        return StoreFailed(f"The bucket {bucket!r} failed on {key!r} ({status} {code}); see the store's log.")


def _is_past(key: str, prefix: str) -> bool:
    """Say whether no key from `key` on begins with `prefix`, in order of UTF-8 or, as Azurite lists, of UTF-16."""
    later = key > prefix and key.encode("utf-16-be") > prefix.encode("utf-16-be")
    return later and not key.startswith(prefix)


def _entry(meta: Any) -> Entry:
    etag = str(meta["e_tag"]).strip('"')
    return Entry(meta["path"], meta["size"], etag, meta["last_modified"].timestamp())


_UNCERTAIN = {0, 408, 429, 500, 502, 503, 504}
_STATUSES = {
    FileNotFoundError: 404,
    AlreadyExistsError: 412,
    PreconditionError: 412,
    UnauthenticatedError: 401,
    PermissionDeniedError: 403,
    NotSupportedError: 501,
}
_STATUS = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NOT_SENT = 400
"""The status of what obstore itself refuses."""


async def _ask(request: Awaitable[R]) -> R:
    """Return what a request of obstore does; `RequestFailed` instead of obstore's own errors."""
    try:
        return await request
    except (BaseError, FileNotFoundError, ValueError) as error:
        failed = _request_failed(error)
    finally:
        del request  # it has the error, which has this frame
    try:
        raise failed
    finally:
        del failed


def _request_failed(error: Exception) -> RequestFailed:
    text = str(error)
    code = found[1] if (found := _CODE.search(text)) else type(error).__name__
    if "token request" in text:
        return RequestFailed(401, code)
    # Of an empty object Azurite answers a Content-Range that is not HTTP's.
    if "InvalidRangeRequest" in text or "CONTENT_RANGE" in text:
        return RequestFailed(416, code)
    status = _STATUSES.get(type(error))
    if status is None and (found := _STATUS.search(text)):
        status = int(found[1] or found[2])
    if status is None:
        status = 0 if isinstance(error, GenericError) else _NOT_SENT
    return RequestFailed(status, code)
