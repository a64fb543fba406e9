"""A store in a container of Azure Blob Storage or a bucket of Google Cloud Storage, using obstore.

Azure compares etags. Google compares generations, but its listings contain only etags. The store's etag is therefore
Google's etag, and a conditional put translates the etag to the generation that this process last read or put or, if
unknown, that a HEAD request returns. A put on another state is refused either way.

A put whose reply is lost is settled as in an S3 bucket (`hsparse.storage.s3.s3_store`): by a mark in the metadata.
obstore's own retries are off, because they hide whether a reply was lost. obstore has no conditional delete.

Absence, failed conditions and refusals count only if the reply has the service's error code. A reply without one comes
from a proxy, and the request is sent again.
"""

from __future__ import annotations

import re
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

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import (
    BadRequest,
    HsparseError,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    StoreFull,
    Unsupported,
)
from hsparse.storage.bucket_client import AccessRefused, BucketClient, RetryReason
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
"""Metadata name of the mark of the conditional put that wrote an object; Azure allows letters, digits and `_`."""
GENERATIONS = 16_384
"""Number of keys whose last generation is remembered."""
CONNECT_SECONDS = 5

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Cloud:
    """The differences between the services that obstore supports."""

    make: Any
    suffixes: bool
    """Whether the end of an object can be read without knowing its size."""
    offsets: bool
    """Whether a listing can start at a key; otherwise the listing is read from its beginning."""
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
    """A failed request: the HTTP status of the reply, or 0 if there was no reply, and the service's error code.

    The code is empty if the reply has none; the reply then does not come from the service.

    This exception replaces obstore's errors, because their text contains the URL, which may have a signature.
    """

    def __init__(self, status: int, code: str = "") -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code


class ObstoreStore(BucketClient):
    """An `ObjectStore` in the bucket `az://container` or `gs://bucket`; `open` it first, or use it as a context.

    obstore reads account, credentials and endpoint from the environment, unless `config` has them. With `unsigned`,
    requests are sent without credentials. `settings` are passed to `BucketClient`.
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
        self._generations: BoundedCache[str, tuple[str, str]] = BoundedCache.of_entries(GENERATIONS)

    async def open(self) -> Self:
        """Create the pooled client without sending anything."""
        self._client = self._make()
        return self

    def _make(self) -> Any:
        options = {
            "allow_http": True,  # used only if the endpoint's URL begins with http://
            "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, self._deadline / 3)),
            "read_timeout": timedelta(seconds=self._deadline / 3),
            "timeout": timedelta(seconds=self._deadline),
        }
        try:
            return self._cloud.make(
                self.name, config=self._config, client_options=options, retry_config={"max_retries": 0}
            )
        except (BaseError, ValueError) as error:
            raise Misconfigured(
                f"The bucket {self._url!r} cannot be used ({type(error).__name__}); set {self._cloud.credentials}."
            ) from None

    async def _read_credentials(self) -> bool:
        """Create a client with the current credentials, which may be new; return False if that fails."""
        try:
            self._client = self._make()
        except Misconfigured:
            return False
        return True

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
        """Read the last `-start` bytes: ask for the size, then read; repeat while the size changes in between."""
        while True:
            size = int((await self._run(key, lambda: self._look(key))).meta["size"])
            first, count = resolve_range(key, start, None, size)
            try:
                found = await self.get_range(key, first, count)
            except BadRequest:  # the object has become shorter
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
        except (Misconfigured, Unsupported):  # these credentials cannot sign
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
            await self._run(key, lambda: self._delete(key))
        except NotFound:
            return

    async def delete_if_match(self, key: str, etag: str) -> None:
        check_key(key)
        raise Unsupported(f"The bucket {self._url!r} has no conditional delete.")

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)

    async def _put_if(self, key: str, data: Buffer, etag: str | None) -> str:
        """Put an object if its etag is `etag` or, if `etag` is None, if it does not exist; return the new etag."""
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
                del failed_condition  # breaks the cycle from the error to this frame and back

        return await self._run(key, send, settle)

    async def _condition(self, key: str, etag: str) -> dict[str, str]:
        """Return obstore's condition for replacing the object with this etag: an etag or a generation."""
        if not self._cloud.generations:
            return {"e_tag": f'"{etag}"'}
        if (known := self._generations.get(key)) is None or known[0] != etag:
            self._etag(key, (await self._look(key)).meta)
            known = self._generations[key]
        if known[0] != etag:
            raise RequestFailed(412, "ConditionNotMet")
        return {"version": known[1]}

    # --- one request --------------------------------------------------------------------------------

    async def _get(self, key: str, span: Any = None) -> Stored:
        reply = await _ask(
            obstore.get_async(self._client, key, options={} if span is None else {"range": span})
        )
        data = bytes(await _ask(reply.bytes_async()))
        return Stored(data, self._etag(key, reply.meta), reply.meta["size"])

    async def _look(self, key: str) -> Any:
        """Return an object's metadata. A failed HEAD has no error code, so a GET is sent to learn the code."""
        try:
            return await _ask(obstore.get_async(self._client, key, options={"head": True}))
        except RequestFailed as error:
            if not 300 <= error.status < 500:
                raise
        return await _ask(obstore.get_async(self._client, key))

    async def _delete(self, key: str) -> None:
        """Delete an object. On Google, also check that it is gone: obstore accepts a proxy's success reply."""
        await _ask(obstore.delete_async(self._client, key))
        if self._cloud.generations:
            await self._look(key)  # raises an error with status 404 if the object is gone
            raise RequestFailed(0)

    async def _put(self, key: str, content: bytes, **options: Any) -> str:
        # No local variable holds the request: with its error it would form a cycle through this frame (Python 3.13).
        meta = await _ask(obstore.put_async(self._client, key, content, use_multipart=False, **options))
        return self._etag(key, meta)

    def _etag(self, key: str, meta: Any) -> str:
        """Return the etag in a reply about an object; on Google, remember its generation.

        Raises `RequestFailed` for a reply that is not from the service: Google's replies have a generation, and Azure's
        etags begin with `0x`.
        """
        etag = str(meta["e_tag"]).strip('"')
        if not (meta["version"] if self._cloud.generations else etag.startswith("0x")):
            raise RequestFailed(0)
        if self._cloud.generations:
            self._generations.keep(key, (etag, str(meta["version"])))
        return etag

    # --- listings -----------------------------------------------------------------------------------

    def list(self, prefix: str, *, delimiter: bool = False, start_after: str = "") -> AsyncIterator[Page]:
        return self._list_folder(prefix, start_after) if delimiter else self._list(prefix, start_after)

    async def _list(self, prefix: str, start_after: str) -> AsyncIterator[Page]:
        """List keys that begin with `prefix`: filter obstore's listing of the folder that contains these keys."""
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
        """List one folder level in pages, although obstore returns the whole level in one reply."""
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

    def _told(self, cause: Exception) -> str:
        if isinstance(cause, RequestFailed) and cause.status:
            return f"{cause.status} {cause.code}" if cause.code else f"a reply {cause.status} of a proxy"
        return super()._told(cause)

    def _verdict(self, error: Exception, key: str) -> HsparseError | RetryReason:
        if not isinstance(error, RequestFailed):
            return RetryReason.UNCERTAIN  # the operation's deadline has passed
        status, code, bucket = error.status, error.code, self._url
        if code in ("ContainerNotFound", "NoSuchBucket"):
            return Misconfigured(f"There is no bucket {bucket!r}; create it, or name another one.")
        if not code or status == 0 or status in _UNCERTAIN:
            return RetryReason.UNCERTAIN
        if status == 404:
            return NotFound(f"There is no object {key!r} in {bucket!r}.")
        if status == 412:
            return PreconditionFailed(f"{key!r} is no longer in the state it was read in; read it again.")
        if status == 416:
            return BadRequest(f"The range of {key!r} starts beyond the object's end.")
        if status == 401:
            return AccessRefused(
                f"There are no usable credentials for the bucket {bucket!r}; set {self._cloud.credentials}."
            )
        if status == 403:
            return AccessRefused(
                f"The bucket {bucket!r} denies access to {key!r} ({code}); check the credentials, and grant "
                f"{self._cloud.rights!r}."
            )
        if status == 507:
            return StoreFull(f"The bucket {bucket!r} has no room for {key!r} ({code}); free space there.")
        if status == 501:
            return Unsupported(f"The bucket {bucket!r} does not support a request that {key!r} needs.")
        return StoreFailed(f"The bucket {bucket!r} failed on {key!r} ({status} {code}); see the store's log.")


def _is_past(key: str, prefix: str) -> bool:
    """Tell whether `key` comes after all keys with `prefix`, both in UTF-8 order and in UTF-16 order (Azurite)."""
    later = key > prefix and key.encode("utf-16-be") > prefix.encode("utf-16-be")
    return later and not key.startswith(prefix)


def _entry(meta: Any) -> Entry:
    etag = str(meta["e_tag"]).strip('"')
    return Entry(meta["path"], meta["size"], etag, meta["last_modified"].timestamp())


_UNCERTAIN = {408, 429, 500, 502, 503, 504}
_STATUSES = {
    FileNotFoundError: 404,
    AlreadyExistsError: 412,
    PreconditionError: 412,
    UnauthenticatedError: 401,
    PermissionDeniedError: 403,
    NotSupportedError: 501,
}
_STATUS = re.compile(r"status code: (\d{3})")
_BEYOND = re.compile(r"Wanted range starting at \d+, but object was only \d+ bytes long$")
_IN_BATCH = re.compile(r"\(code: (\d{3})\)$")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NOT_SENT = 400
"""Status for a request that obstore itself refuses to send."""


async def _ask(request: Awaitable[R]) -> R:
    """Await an obstore request; raise `RequestFailed` instead of obstore's own errors."""
    try:
        return await request
    except (BaseError, FileNotFoundError, ValueError) as error:
        failed = _request_failed(error)
    finally:
        del request  # breaks the cycle from the request's error to this frame and back
    try:
        raise failed
    finally:
        del failed


def _request_failed(error: Exception) -> RequestFailed:
    text = str(error).partition("\n\nDebug source:")[0]
    reply = text.partition("status code")[2]  # the key precedes this text and may look like a code
    code = found[1] if (found := _CODE.search(reply)) else ""
    if "token request" in text:
        return RequestFailed(401, code or "token")
    # For an empty object Azurite answers an invalid Content-Range.
    if "InvalidRangeRequest" in text or "CONTENT_RANGE" in text or _BEYOND.search(text):
        return RequestFailed(416, code or "InvalidRange")
    status = _STATUSES.get(type(error))
    if found := _IN_BATCH.search(text):  # part of the body of an Azure batch reply
        return RequestFailed(int(found[1]), "InBatch")
    if status is None and (found := _STATUS.search(text)):
        status = int(found[1])
    if status is None and not isinstance(error, GenericError):
        return RequestFailed(_NOT_SENT, type(error).__name__)
    if isinstance(error, NotSupportedError):  # obstore's own refusal has no code
        code = code or type(error).__name__
    return RequestFailed(status or 0, code)
