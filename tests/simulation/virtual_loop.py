"""An event loop and clocks on virtual time."""

from __future__ import annotations

import asyncio
import heapq
import io
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

MOST_STEPS = 200_000
"""Callbacks without any time passing, after which the run is taken for a busy loop."""
ROUNDS = 100
"""How often a task is cancelled at the end of a run before that is an error."""


class Stuck(Exception):
    """Nothing is left to do, or too much, before the main task is done; the message has the stacks of all tasks."""


class Process:
    """A simulated process: all that runs in its context. A dead one runs nothing any more; a frozen one later."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.when_dead: list[Callable[[], None]] = []
        """What the outside sees of its end, as closed connections. Called once."""
        self.held_back: list[asyncio.Handle] = []
        """Callbacks that may not run now; a dead process's are kept for the end, when its tasks are cancelled."""
        self._steps_left: int | None = None
        self._context = copy_context()
        self._context.run(_PROCESS.set, self)

    @property
    def context(self) -> Context:
        """A new context of the process."""
        return self._context.copy()

    def kill(self) -> None:
        """End it as `kill -9` does: what it has sent is under way, and nothing of it runs any more."""
        if not self.dead:
            self.dead = True
            for hook in self.when_dead:
                hook()

    def kill_after(self, steps: int) -> None:
        """Kill it after so many more of its callbacks: at any await."""
        self._steps_left = steps

    def freeze(self) -> None:
        """Stop it as SIGSTOP does, until `thaw`: time goes on, its own callbacks do not."""
        self.frozen = True

    def thaw(self, loop: VirtualLoop) -> None:
        """Let it go on; first with what it missed."""
        self.frozen = False
        if not self.dead:
            loop.resume(self)

    def admits_step(self) -> bool:
        """Say whether a callback of it may run now."""
        if self._steps_left is not None and not self.frozen:
            self._steps_left -= 1
            if self._steps_left < 0:
                self.kill()
        return not (self.dead or self.frozen)


_PROCESS: ContextVar[Process | None] = ContextVar("simulated_process", default=None)


def current_process() -> Process | None:
    """Return the process that this code is of, None outside of all."""
    return _PROCESS.get()


class VirtualLoop(asyncio.AbstractEventLoop):
    """See the module. `run` is the only way to run it."""

    def __init__(self, start: float = 1000.0) -> None:
        self._time = start
        self._count = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._purge_at = 256
        self._stopped: dict[Process, None] = {}
        self._closing = False
        self._raised: BaseException | None = None
        self._outside = copy_context()
        self.steps = 0

    # --- running ------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T], *, seconds: float = 3600.0) -> T:
        """Return the result of `main`, within so many virtual seconds; then cancel every other task.

        Raises `Stuck`, and what a callback raised.
        """
        deadline, quiet_since = self._time + seconds, 0
        events._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                if not self._ready and self._advance():
                    quiet_since = self.steps
                if not self._ready or self._time > deadline or self.steps - quiet_since > MOST_STEPS:
                    raise Stuck(f"Stuck after {self._time:.3f} s and {self.steps} steps.\n{self.stacks()}")
                self._step()
            return task.result()
        finally:
            self._cancel_all()
            events._set_running_loop(None)

    def _step(self) -> None:
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        process = handle._context.get(_PROCESS)
        if process is not None and not self._closing and not process.admits_step():
            process.held_back.append(handle)
            self._stopped[process] = None
            return
        self.steps += 1
        handle._run()
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def _advance(self) -> bool:
        """Move all timers of the next time there are any to the ready callbacks."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            return False
        self._time = self._timers[0][0]
        while self._timers and self._timers[0][0] <= self._time:
            self._ready.append(heapq.heappop(self._timers)[2])
        return True

    def _cancel_all(self) -> None:
        """End all tasks, so that none is destroyed while it is pending: those of dead and frozen processes, too."""
        self._closing = True
        for process in self._stopped:
            self.resume(process)
        for _ in range(ROUNDS):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                self._tasks.clear()
                return
            for task in left:
                task.cancel()
            for _ in range(MOST_STEPS):
                if not self._ready:
                    break
                self._step()
        raise Stuck(f"Tasks cannot be cancelled.\n{self.stacks()}")

    def stacks(self) -> str:
        """Return the stacks of all tasks that are not done."""
        text = io.StringIO()
        for task, process in self._tasks.items():
            if not task.done():
                text.write(f"{process or 'outside'}: ")
                task.print_stack(file=text)
        return text.getvalue()

    # --- what is simulated ----------------------------------------------------------------------------

    def spawn(self, process: Process | None, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task of a process, or of none."""
        return self.create_task(work, context=self._outside.copy() if process is None else process.context)

    def outside_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Call back at a time, whatever becomes of the process that asks for it."""
        return self.call_at(when, callback, *args, context=self._outside)

    def resume(self, process: Process) -> None:
        """Let the callbacks of a process run that were held back."""
        self._ready.extend(process.held_back)
        process.held_back.clear()

    # --- what asyncio needs of a loop -------------------------------------------------------------------

    def time(self) -> float:
        return self._time

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (max(when, self._time), self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it in the heap, where it is passed over."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if (
            len(self._tasks) >= self._purge_at
        ):  # strong references: a dead process's tasks are not to be collected
            self._tasks = {task: process for task, process in self._tasks.items() if not task.done()}
            self._purge_at = 2 * len(self._tasks) + 256
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        self._tasks[task] = "" if process is None else process.name
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done = self.create_future()

        def settle(settle: Callable[[Any], None], value: Any) -> None:
            if not done.done():
                settle(value)

        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
            self.call_soon(settle, done.set_exception, error)
        else:
            self.call_soon(settle, done.set_result, result)
        return done

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Let `run` raise what a callback raised; a result that nobody asked for is no error."""
        if "handle" in context and not self._closing:
            self._raised = context["exception"]


EPOCH = 1_700_000_000.0


class _Seconds:
    """Seconds as a clock counts them, `rate` a second."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._count = self._since = 0.0
        self._rate = 1.0

    def read(self) -> float:
        return self._count + self._rate * (self._loop.time() - self._since)

    def go_at(self, rate: float) -> None:
        if rate == self._rate:  # else a run would differ by what is rounded
            return
        self._count, self._since, self._rate = self.read(), self._loop.time(), rate


class VirtualClock:
    """A `Clock`. Monotonic clocks of two processes have nothing to do with each other, as on two machines."""

    def __init__(self, loop: VirtualLoop, generator: random.Random) -> None:
        self._generator = generator
        self._boot = generator.uniform(0, 1e6)
        self._offset = generator.uniform(-1, 1)
        self._monotonic = _Seconds(loop)
        self._day = _Seconds(loop)
        self._drift = 1.0

    def now(self) -> float:
        return EPOCH + self._day.read() + self._offset

    def monotonic(self) -> float:
        return self._boot + self._monotonic.read()

    def token(self, nbytes: int) -> bytes:
        return self._generator.randbytes(nbytes)

    def jump(self, seconds: float) -> None:
        """Set the time of day forward, or back."""
        self._offset += seconds

    def drift(self, rate: float, *, both: bool = False) -> None:
        """Let the monotonic clock go at so many seconds a second, and the time of day, too, if `both`."""
        self._drift = rate
        self._monotonic.go_at(rate)
        if both:
            self._day.go_at(rate)

    def stand(self) -> None:
        """Stop the monotonic clock, as a suspended machine does where there is no clock of the time since boot."""
        self._monotonic.go_at(0.0)

    def go_on(self) -> None:
        """Let the monotonic clock go on."""
        self._monotonic.go_at(self._drift)


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Have a test run on a loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        VirtualLoop().run(test(*args, **kwargs))

    return run
