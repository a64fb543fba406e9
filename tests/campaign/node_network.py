"""A network of this machine that can be cut: each data node has a namespace with two links, to nodes and to the store.

It needs root and `ip` (Debian: iproute2). Service nodes, clients and the store are outside of the namespaces.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

NODES, STORE = "nodes", "store"
FIRST_ADDRESS, ADDRESSES = 10, 200


@dataclass(frozen=True, slots=True)
class NetworkPlace:
    """A namespace by its name, and the address that its processes have in the network of nodes."""

    name: str
    address: str
    number: int

    @property
    def path(self) -> str:
        return f"/var/run/netns/{self.name}"


@dataclass(slots=True)
class NodeNetwork:
    """Two bridges with addresses of their own, in the range for tests of networks (RFC 2544)."""

    tag: str = field(default_factory=lambda: f"{os.getpid() % 0xFFFF:x}")
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _places: list[NetworkPlace] = field(default_factory=list)

    @property
    def _subnets(self) -> dict[str, str]:
        second = os.getpid() % 120
        return {NODES: f"198.18.{2 * second}", STORE: f"198.18.{2 * second + 1}"}

    @property
    def store_address(self) -> str:
        """The address at which data nodes find a store outside."""
        return f"{self._subnets[STORE]}.1"

    def open(self) -> None:
        for kind, subnet in self._subnets.items():
            _ip(f"link add {self._bridge(kind)} type bridge")
            _ip(f"addr add {subnet}.1/24 dev {self._bridge(kind)}")
            _ip(f"link set {self._bridge(kind)} up")

    def close(self) -> None:
        for place in list(self._places):
            self.remove(place)
        for kind in self._subnets:
            _ip(f"link del {self._bridge(kind)}")

    def add(self) -> NetworkPlace:
        """Make a namespace with both links up."""
        number = next(self._numbers)
        last = FIRST_ADDRESS + number % ADDRESSES
        place = NetworkPlace(f"hs{self.tag}-{number}", f"{self._subnets[NODES]}.{last}", number)
        _ip(f"netns add {place.name}")
        self._places.append(place)
        _ip(f"-n {place.name} link set lo up")
        for kind, subnet in self._subnets.items():
            outer = self._link(place, kind)
            _ip(f"link add {outer} type veth peer name {kind} netns {place.name}")
            _ip(f"link set {outer} master {self._bridge(kind)} up")
            _ip(f"-n {place.name} addr add {subnet}.{last}/24 dev {kind}")
            _ip(f"-n {place.name} link set {kind} up")
        return place

    def remove(self, place: NetworkPlace) -> None:
        """Remove a namespace, whose processes have ended."""
        self._places.remove(place)
        _ip(f"netns del {place.name}")

    def cut(self, place: NetworkPlace, kind: str) -> None:
        """Take the link down, outside: what is sent is lost, and nobody is told."""
        _ip(f"link set {self._link(place, kind)} down")

    def mend(self, place: NetworkPlace, kind: str) -> None:
        _ip(f"link set {self._link(place, kind)} up")

    def _bridge(self, kind: str) -> str:
        return f"hs{self.tag}{kind[0]}"

    def _link(self, place: NetworkPlace, kind: str) -> str:
        return f"hs{self.tag}{kind[0]}{place.number}"


@contextmanager
def node_network() -> Iterator[NodeNetwork]:
    """Have the network while the context lasts."""
    network = NodeNetwork()
    try:
        network.open()
        yield network
    finally:
        network.close()


def _ip(arguments: str) -> None:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {arguments}: {done.stderr.strip()}")
