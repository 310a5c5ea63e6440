"""Compute, backups and loads on a device that executes late, compared with doing each at once.

Twin pools get the effect of each action when it is made. On the device it happens later, in any
order that streams and events permit; what compute reads, and every byte at the end, must be as if
everything had happened at once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import torch
from attrs import Factory, define, field

from cuda_scene import BACKUP, CONFIG, LAYOUTS, LOAD_BACK, contents
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, GPU, Component, Medium, TransferId
from late_gpu import LateDevice, LateEvent, LateStream

Place = tuple[Component, int]
"""A slot of one medium."""


@define(eq=False)
class Flight:
    """A copy under way."""

    transfer_id: TransferId
    direction: Direction
    moves: tuple[Move, ...]


@define(eq=False)
class Late:
    """Two streams of compute, an engine on a late device, and what should come of it."""

    device: LateDevice
    engine: CudaEngine
    pools: Pools
    twin: Pools
    pump: Callable[[], None]
    """Let the engine enqueue what was submitted."""
    rng: Random
    streams: list[LateStream] = field(
        default=Factory(lambda self: [self.device.compute, self.device.stream()], takes_self=True)
    )
    last_use: dict[Place, LateEvent] = field(factory=dict)
    """By device slot, the latest last: the end of the work of compute that used it last."""
    flights: dict[TransferId, Flight] = field(factory=dict)
    made: int = 0

    def act(self) -> None:
        """Do something, and let some of it happen."""
        self.rng.choice((self.write, self.read, self.backup, self.load, self.load, self.poll))()
        self.pump()
        self.device.progress(self.rng.choice((0, 3, 30)))

    def write(self) -> None:
        """A kernel of compute writes to slots that no copy uses."""
        used = self.places(self.free(GPU))
        stream = self.ordered_stream(used)
        value = self.rng.randrange(1, 256)
        for pools in (self.pools, self.twin):

            def work(pools: Pools = pools) -> None:
                for component, slot in used:
                    for at, plane in enumerate(pools.planes(component)):
                        plane[:, slot] = (value + slot + 7 * at) % 256

            if pools is self.twin:
                work()
            else:
                self.device.enqueue(stream, work)
        self.used(stream, used)

    def read(self) -> None:
        """A kernel of compute reads slots, among them the sources of backups."""
        sources = {
            place
            for flight in self.flights.values()
            if flight.direction is BACKUP
            for place in self.ends(flight, GPU)
        }
        used = self.places(self.free(GPU) | sources)
        self.read_late(self.ordered_stream(used), used)

    def backup(self) -> None:
        """Copy some pages to the host, after compute wrote them."""
        self.copy(BACKUP)

    def load(self) -> None:
        """Copy some pages to the device, after compute last used the slots there, and read them."""
        flight = self.copy(LOAD_BACK)
        stream = self.rng.choice(self.streams)
        if flight is None or self.rng.random() < 0.3:
            return
        self.pump()
        self.device.progress()
        with self.device.running_on(stream):
            for layer in range(self.rng.choice((1, 9))):
                assert self.engine.wait_layer(flight.transfer_id, layer)
                there = self.ends(flight, GPU)
                self.read_late(stream, there, layer + 1, note=False)
        # The pages are not settled, and the stream may still read them when they are.
        self.used(stream, there)

    def copy(self, direction: Direction) -> Flight | None:
        """Submit an order, with a point after which it may use its device slots."""
        pairs = {}
        for component in LAYOUTS:
            most = min(3, *(len(self.of(component, self.free(each))) for each in (GPU, CPU)))
            count = self.rng.randrange(most + 1)
            pairs[component] = {
                GPU: self.pick(component, count),
                CPU: self.rng.sample(self.of(component, self.free(CPU)), count),
            }
        moves = tuple(
            Move(
                component,
                np.array(pair[direction.source], np.int32),
                np.array(pair[direction.target], np.int32),
            )
            for component, pair in pairs.items()
            if pair[GPU]
        )
        if not moves:
            return None
        self.made += 1
        flight = Flight(self.made, direction, moves)
        after = self.point(self.ends(flight, GPU))
        self.engine.submit(page_order(flight.transfer_id, direction, moves, self.pools, after))
        for move in moves:
            self.twin.copy(move, direction)
        self.flights[flight.transfer_id] = flight
        return flight

    def pick(self, component: Component, count: int) -> list[int]:
        """Free device slots, often those that compute used last."""
        free = self.of(component, self.free(GPU))
        if self.rng.random() < 0.3:
            return self.rng.sample(free, count)
        recent = [slot for each, slot in self.last_use if each is component and slot in free]
        return list(dict.fromkeys([*recent[::-1], *free]))[:count]

    def point(self, used: set[Place]) -> object:
        """The last use of some slots, as an engine may name it."""
        stream = self.ordered_stream(used)
        way = self.rng.randrange(3)
        if way == 0:
            with self.device.running_on(stream):
                return self.engine.event_after(None)
        if way == 1:
            return self.engine.event_after(stream)
        event = self.device.event()
        event.record(stream)
        after = self.engine.event_after(event)
        # Engines have few events and record them again, on any stream.
        event.record(self.rng.choice(self.streams))
        return after

    def poll(self) -> None:
        """Settle what has ended."""
        if self.flights and self.rng.random() < 0.3:
            self.engine.wait(self.rng.choice(list(self.flights)))
        for done in self.engine.poll():
            assert done.ok
            del self.flights[done.transfer_id]

    def end(self) -> None:
        """Let all happen; compare every byte."""
        self.pump()
        self.device.synchronize()
        self.poll()
        assert not self.flights
        assert self.device.complaints == []
        assert contents(self.pools) == contents(self.twin)

    def ordered_stream(self, used: set[Place]) -> LateStream:
        """A stream that waits for the last use of some slots, as engines order their streams."""
        stream = self.rng.choice(self.streams)
        for place in used:
            if place in self.last_use:
                stream.wait_event(self.last_use[place])
        return stream

    def read_late(
        self, stream: LateStream, used: set[Place], layers: int = 99, *, note: bool = True
    ) -> None:
        """Compare slots with the twin's of now, when the stream comes to it."""
        should = {place: self.page(self.twin, place, layers) for place in used}

        def work() -> None:
            for place, page in should.items():
                if self.page(self.pools, place, layers) != page:
                    self.device.complaints.append(f"compute read wrong bytes in {place}")

        self.device.enqueue(stream, work)
        if note:
            self.used(stream, used)

    def used(self, stream: LateStream, used: set[Place]) -> None:
        """Remember the last use of slots, after the uses before it."""
        for place in used:
            if place in self.last_use:
                stream.wait_event(self.last_use[place])
        event = self.device.event()
        event.record(stream)
        for place in used:
            self.last_use.pop(place, None)
            self.last_use[place] = event

    def page(self, pools: Pools, place: Place, layers: int) -> bytes:
        """The first layers of a device slot."""
        component, slot = place
        return b"".join(plane[:layers, slot].numpy().tobytes() for plane in pools.planes(component))

    def places(self, among: set[Place]) -> set[Place]:
        """Some of these slots."""
        return set(self.rng.sample(sorted(among), min(4, len(among))))

    def free(self, medium: Medium) -> set[Place]:
        """Slots that no copy uses."""
        every = {
            (component, slot)
            for component in LAYOUTS
            for slot in range(CONFIG.capacity(component, medium))
        }
        return every.difference(*(self.ends(each, medium) for each in self.flights.values()))

    def of(self, component: Component, places: set[Place]) -> list[int]:
        """The slots of one component."""
        return sorted(slot for each, slot in places if each is component)

    def ends(self, flight: Flight, medium: Medium) -> set[Place]:
        """The slots of a copy on one medium."""
        return {
            (move.component, slot)
            for move in flight.moves
            for slot in (
                move.sources if medium is flight.direction.source else move.targets
            ).tolist()
        }


def random_pools(seed: int) -> Pools:
    """Pools with something in every slot."""
    made, numbers = Pools(CONFIG, LAYOUTS), torch.Generator().manual_seed(seed)
    for component in LAYOUTS:
        for tensor in (*made.planes(component), made.slab(component)):
            drawn = torch.randint(0, 256, tensor.shape, dtype=torch.uint8, generator=numbers)
            tensor.copy_(drawn)
    return made
