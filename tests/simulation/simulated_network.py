"""The network and the store of simulated clusters, with their faults."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from hsparse.errors import HsparseError, StoreFailed
from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.wire.codec import decode_frame, encode_frame
from hsparse.wire.message import Message
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.testing.store_wrapper import StoreWrapper

R = TypeVar("R")
Work = Callable[[], Coroutine[Any, Any, R]]


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often a request meets which fault, and how long it takes, in seconds.

    `late` requests are given up by their sender and arrive after that. A `duplicated` one is carried out twice before
    it is answered, as one that was sent again because a reply was lost. `refused` is an answer 503.
    """

    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    duplicated: float = 0.0
    latency: float = 0.002
    slow: float = 0.02
    """How often it takes 50 times as long."""
    patience: float = 1.0
    """Seconds after which the sender gives a request up."""
    lateness: float = 1.0
    """Seconds after that within which a late request arrives."""


class _Request:
    """A request under way. `answer` and `fail` are for its sender, the first one counts."""

    def __init__(self, network: SimulatedNetwork, name: str, error: type[HsparseError]) -> None:
        self._loop = network.loop
        self._name = name
        self._error = error
        self.reply = network.loop.create_future()

    def fail(self, reason: str) -> None:
        if not self.reply.done():
            self.reply.set_exception(self._error(f"{self._name} did not answer: {reason}."))

    def fail_in(self, delay: float, reason: str) -> None:
        self._loop.outside_at(self._loop.time() + delay, self.fail, reason)

    def settle_in(self, delay: float, result: Any, error: HsparseError | None) -> None:
        def settle() -> None:
            if self.reply.done():
                return
            if error is None:
                self.reply.set_result(result)
            else:
                self.reply.set_exception(error)

        self._loop.outside_at(self._loop.time() + delay, settle)


class SimulatedNetwork:
    """The links between processes, each named by its ends. `error` is what an unanswered message raises."""

    def __init__(
        self, loop: VirtualLoop, generator: random.Random, *, error: type[HsparseError] = StoreFailed
    ) -> None:
        self.loop = loop
        self.error = error
        self.generator = generator
        self.defects: list[BaseException] = []
        """What no request may raise: errors that are not hsparse's own."""
        self._cut: set[frozenset[str]] = set()

    def cut(self, one: str, other: str) -> None:
        """Let nothing through between the two from now on: neither requests nor replies."""
        self._cut.add(frozenset((one, other)))

    def heal(self) -> None:
        """Restore every link."""
        self._cut.clear()

    async def call(
        self, sender: Process | None, receiver: Process | str, work: Work[R], rates: FaultRates
    ) -> R:
        """Return what `work` returns at the receiver, a process or the name of one that never dies.

        Raises its `HsparseError`, or `StoreFailed` (from a data node: `error`) when it is not known what became of it.
        """
        name = receiver if isinstance(receiver, str) else receiver.name
        link = frozenset((sender.name if sender is not None else "client", name))
        error = StoreFailed if isinstance(receiver, str) else self.error
        request = _Request(self, name, error)
        arrival, fate = self.latency(rates), self._fate(rates)
        given_up = self.loop.outside_at(self.loop.time() + rates.patience, request.fail, "timed out")
        if fate == "refused":
            request.settle_in(arrival, None, error(f"{name} answered 503."))
        elif fate != "lost_request":
            if fate == "late":
                arrival = rates.patience + self.generator.uniform(0, rates.lateness)
            process = None if isinstance(receiver, str) else receiver
            delivery = _Delivery(self, request, link, sender, process, work, fate, rates)
            self.loop.outside_at(self.loop.time() + arrival, delivery.arrive)
        try:
            return cast(R, await request.reply)
        finally:
            given_up.cancel()

    def is_cut(self, link: frozenset[str]) -> bool:
        """Say whether nothing gets through a link."""
        return link in self._cut

    def latency(self, rates: FaultRates) -> float:
        delay = self.generator.expovariate(1 / rates.latency)
        return 50 * delay if self.generator.random() < rates.slow else delay

    def _fate(self, rates: FaultRates) -> str:
        drawn = self.generator.random()
        for fate in ("lost_request", "lost_reply", "late", "refused", "duplicated"):
            drawn -= getattr(rates, fate)
            if drawn < 0:
                return fate
        return ""


@dataclass(slots=True)
class _Delivery:
    """A request that arrives at its receiver, and its reply."""

    network: SimulatedNetwork
    request: _Request
    link: frozenset[str]
    sender: Process | None
    receiver: Process | None
    work: Work[Any]
    fate: str
    rates: FaultRates

    def arrive(self) -> None:
        network, receiver = self.network, self.receiver
        if network.is_cut(self.link):
            return
        if self.sender is not None and self.sender.dead and network.generator.random() < 0.5:
            return  # it was still in the dead sender's buffers
        if receiver is not None:
            if receiver.dead:
                self.request.fail_in(network.latency(self.rates), "connection refused")
                return
            receiver.when_dead.append(self._lost_connection)
        network.loop.spawn(receiver, self._carry_out())

    def _lost_connection(self) -> None:
        if not self.network.is_cut(self.link):
            self.request.fail_in(self.network.latency(self.rates), "connection reset")

    async def _carry_out(self) -> None:
        result, error = await self._once()
        if self.fate == "duplicated":
            await self._once()
        if self.receiver is not None:
            self.receiver.when_dead.remove(self._lost_connection)
        if self.fate != "lost_reply" and not self.network.is_cut(self.link):
            self.request.settle_in(self.network.latency(self.rates), result, error)

    async def _once(self) -> tuple[Any, HsparseError | None]:
        try:
            return await self.work(), None
        except HsparseError as error:
            return None, error
        except Exception as error:  # noqa: BLE001 - it fails the run
            self.network.defects.append(error)
            return None, HsparseError("Internal error of a data node.")


class SimulatedNode:
    """`DataNode` at the other end of the network, as a process sees it; what is sent is encoded and decoded."""

    def __init__(
        self,
        network: SimulatedNetwork,
        sender: Process,
        receiver: Callable[[], tuple[Process, Any]],
        rates: Callable[[], FaultRates],
    ) -> None:
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._rates = rates

    async def send(self, message: Message[R]) -> R:
        """Send the message; raises the network's `error` when there was no answer."""
        process, node = self._receiver()
        sent = carried(message)

        async def work() -> Any:
            return carried(await node.send(sent))

        return cast(R, await self._network.call(self._sender, process, work, self._rates()))

    async def close(self) -> None:
        """Hold nothing."""


def carried(value: Any) -> Any:
    """Return a message or a reply as its receiver reads it."""
    read = decode_frame(b"".join(encode_frame(value)))
    return tuple(read) if isinstance(read, list) else read


STORE = "store"
"""The store's name as the end of a link."""


class SimulatedStore(StoreWrapper):
    """One process's view of a store, which outlives it: a request that was sent may still be applied.

    `rates` are by method and key.
    """

    def __init__(
        self,
        store: ObjectStore,
        network: SimulatedNetwork,
        process: Process,
        rates: Callable[[str, str], FaultRates],
    ) -> None:
        super().__init__(store)
        self._network = network
        self._process = process
        self._rates = rates

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        sent, rates = bytes(data), self._rates(method, key)

        async def apply() -> R:
            return await call(sent)

        return await self._network.call(self._process, STORE, apply, rates)

    async def close(self) -> None:
        """Leave the store open."""
