"""Objects whose methods are those of an object of the client, done by threads: how a method becomes one to await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from threading import Lock
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

T = TypeVar("T")
Found = TypeVar("Found")
P = ParamSpec("P")
Wrapped = TypeVar("Wrapped")
END = object()


class AsyncObject(Generic[Wrapped]):
    """An object of `hsparse.open`, `sync`, and the threads that call it."""

    def __init__(self, sync: Wrapped, pool: ThreadPoolExecutor) -> None:
        self.sync = sync
        self.pool = pool

    def __repr__(self) -> str:
        return f"<async {self.sync!r}>"

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Return `call(*args, **options)`, which a thread of the pool does: for functions that have no name here."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, partial(copy_context().run, call, *args, **options))

    async def iterate(
        self, begin: Callable[P, Iterator[T]], *args: P.args, **options: P.kwargs
    ) -> AsyncGenerator[T]:
        """Yield what the iterator `begin(*args, **options)` does; threads of the pool take its steps.

        Left early, the iterator is closed when a step that is under way has ended; a cancelled task does not wait.
        """
        turn = Lock()
        iterator = await self.run(begin, *args, **options)

        def step() -> Any:
            with turn:
                return next(iterator, END)

        def close() -> None:
            with turn:
                getattr(iterator, "close", int)()

        is_cancelled = False
        try:
            while (found := await self.run(step)) is not END:
                yield found
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            closed = asyncio.get_running_loop().run_in_executor(None, close)
            if not is_cancelled:
                await closed


class Awaited(Generic[P, T]):
    """A method of the client's object as one to await, with its parameters and its documentation.

    `wrap(found, pool)` makes of what it returns what the caller gets.
    """

    @overload
    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None: ...

    @overload
    def __init__(
        self, method: Callable[Concatenate[Any, P], Found], wrap: Callable[[Found, ThreadPoolExecutor], T]
    ) -> None: ...

    def __init__(
        self,
        method: Callable[Concatenate[Any, P], Any],
        wrap: Callable[[Any, ThreadPoolExecutor], T] | None = None,
    ) -> None:
        @wraps(method)
        async def call(self: AsyncObject[Any], *args: P.args, **options: P.kwargs) -> Any:
            found = await self.run(getattr(self.sync, method.__name__), *args, **options)
            return found if wrap is None else wrap(found, self.pool)

        self._call = call

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, instance: AsyncObject[Any], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(
        self, instance: AsyncObject[Any] | None, owner: type
    ) -> Callable[..., Coroutine[Any, Any, T]]:
        return self._call if instance is None else MethodType(self._call, instance)


class Iterated(Generic[P, T]):
    """A method of the client's object that returns an iterator, as one that returns an async iterator."""

    def __init__(self, method: Callable[Concatenate[Any, P], Iterator[T]]) -> None:
        @wraps(method)
        def call(self: AsyncObject[Any], *args: P.args, **options: P.kwargs) -> AsyncGenerator[T]:
            begin = cast("Callable[P, Iterator[T]]", getattr(self.sync, method.__name__))
            return self.iterate(begin, *args, **options)

        self._call = call

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., AsyncGenerator[T]]: ...

    @overload
    def __get__(self, instance: AsyncObject[Any], owner: type) -> Callable[P, AsyncGenerator[T]]: ...

    def __get__(self, instance: AsyncObject[Any] | None, owner: type) -> Callable[..., AsyncGenerator[T]]:
        return self._call if instance is None else MethodType(self._call, instance)
