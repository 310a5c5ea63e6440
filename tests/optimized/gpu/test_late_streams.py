"""The engine on a device that executes late, in any order that streams and events permit.

Compute, backups and loads are compared with doing each at once: twin pools get the effect of each
action when it is made. On the device it happens later; what compute reads, and every byte at the
end, must be as if everything had happened at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from threading import get_ident

import numpy as np
import pytest
import torch
from attrs import Factory, define, evolve, field, frozen

from gpu.fake import DriverLibrary, InterpretedKernel
from gpu.late import CopiedKernel, LateDevice, LateDriver, LateEvent, LateKernel, LateStream
from gpu.scene import BACKUP, CONFIG, LAYOUTS, LOAD_BACK, SMALL, WAYS, contents, random_pools, slots
from kvcanon.optimized import calibration, cuda_engine, mover, slot_uploads
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.copy_workers import CopyWorker
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu, prove_batches
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.slot_uploads import SlotUploads
from kvcanon.optimized.staging import MarkKind, Step, StreamRole, Wait
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import CPU, FULL, GPU, Component, Medium, TransferId

ACTIONS = 25

LATE_WAYS = WAYS | {
    "through a large ring": (Limits(ring_slot_bytes=1 << 14, least_piece_bytes=1), 0),
    "through a ring of one slot": (evolve(SMALL, ring_slots=1), 0),
}

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

        def work(pools: Pools) -> None:
            for component, slot in used:
                for at, plane in enumerate(pools.planes(component)):
                    plane[:, slot] = (value + slot + 7 * at) % 256

        work(self.twin)
        self.device.enqueue(stream, partial(work, self.pools))
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
            Move(component, slots(*pair[direction.source]), slots(*pair[direction.target]))
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
        is_source = medium is flight.direction.source
        return {
            (move.component, slot)
            for move in flight.moves
            for slot in (move.sources if is_source else move.targets).tolist()
        }


@frozen(eq=False)
class Workshop:
    """Makes scenes on late devices."""

    library: DriverLibrary
    monkeypatch: pytest.MonkeyPatch
    kernel: pages.Kernel = field(factory=CopiedKernel)

    def gpu(self, seed: int) -> tuple[LateDevice, Gpu]:
        """A late device, with its kernel in place, and as an engine opens it."""
        device = LateDevice(seed)
        self.monkeypatch.setattr(pages, "MOVE_PAGES", LateKernel(device, self.kernel))
        driver = LateDriver(str(self.library.path), device)
        return device, Gpu(torch.device("cpu"), device, driver)

    def scene(self, seed: int, limits: Limits = SMALL, direct_bytes: int | None = 0) -> Late:
        """An engine whose threads a test stands in for, so that a seed fixes everything."""
        self.monkeypatch.setattr(CopyWorker, "start", lambda *_: None)
        device, gpu = self.gpu(seed)
        pools, twin = random_pools(seed), random_pools(seed)
        for component in pools.layouts:
            # As pools on a GPU, these are filled by a kernel that has not run.
            for plane in pools.planes(component):
                content = plane.clone()
                plane.fill_(0xAB)
                device.enqueue(device.compute, partial(plane.copy_, content))
        engine = CudaEngine(pools, limits, direct_bytes=direct_bytes, gpu=gpu)

        def pump() -> None:
            # As the thread of a lane does, which enters the device first.
            with device.beside_captures():
                for worker in engine._workers.values():
                    while worker.waiting:
                        cuda_engine._work_one(worker)

        return Late(device, engine, pools, twin, pump, Random(seed))

    def play(self, seed: int, limits: Limits, direct_bytes: int) -> None:
        """Act on a scene, let all happen, and compare every byte."""
        late = self.scene(seed, limits, direct_bytes)
        for _ in range(ACTIONS):
            late.act()
        late.end()


@pytest.fixture
def workshop(library: DriverLibrary, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A maker of scenes; uploads have so few numbers that they come round to unread ones."""
    monkeypatch.setattr(slot_uploads, "LEAST_NUMBERS", 1)
    return Workshop(library, monkeypatch)


@pytest.mark.parametrize(("limits", "direct_bytes"), LATE_WAYS.values(), ids=LATE_WAYS)
@pytest.mark.parametrize("seed", range(6))
def test_late_work_moves_the_same_bytes(
    limits: Limits, direct_bytes: int, seed: int, workshop: Workshop
) -> None:
    """Copies and compute on two streams are, in any legal order, as if each happened at once.

    The first is played with the kernel itself.
    """
    kernel = CopiedKernel() if seed else InterpretedKernel()
    evolve(workshop, kernel=kernel).play(seed, limits, direct_bytes)


KERNEL, COPY = StreamRole
WAITS = {
    "backup_steps": [
        (KERNEL, MarkKind.SUBMITTED),
        (KERNEL, MarkKind.EMPTIED),
        (COPY, MarkKind.FILLED),
        (COPY, MarkKind.KERNELS_ENDED),
    ],
    "load_steps": [
        (KERNEL, MarkKind.SUBMITTED),
        (COPY, MarkKind.EMPTIED),
        (KERNEL, MarkKind.FILLED),
    ],
}
"""What a transfer waits for, by the function that plans it."""


@pytest.mark.parametrize(
    ("plan", "left_out"), [(plan, each) for plan, waits in WAITS.items() for each in waits]
)
def test_every_wait_is_needed(
    plan: str,
    left_out: tuple[StreamRole, MarkKind],
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are no others, and without any of these some order of the device goes wrong."""
    steps, seen = getattr(mover, plan), set[tuple[StreamRole, MarkKind]]()
    goes_direct = left_out[1] is MarkKind.KERNELS_ENDED
    way = "some of each" if goes_direct else "through a ring of one slot"

    def without(*given: object) -> Iterator[Step]:
        for step in steps(*given):
            wait = (step.stream, step.mark.kind) if isinstance(step, Wait) else None
            seen.update([wait] if wait else [])
            if wait != left_out:
                yield step

    def is_wrong(seed: int) -> bool:
        try:
            workshop.play(seed, *LATE_WAYS[way])
        except AssertionError:
            return True
        return False

    monkeypatch.setattr(mover, plan, without)
    assert any(is_wrong(seed) for seed in range(30))
    assert seen == set(WAITS[plan])


@pytest.mark.parametrize("seed", range(20))
def test_a_trial_of_batches_waits_for_the_owner_of_its_memory(
    seed: int, workshop: Workshop
) -> None:
    """Memory of the current stream's pool is written only after the work that still uses it."""
    device, gpu = workshop.gpu(seed)
    prove_batches(gpu, HostSlab(1, 4096, gpu.device))
    device.synchronize()
    assert device.complaints == []


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_is_calibrated_and_closed_in_any_order(
    seed: int, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calibration and its scratch pools leave all bytes as they were, and so does the end."""
    monkeypatch.setattr(calibration, "LARGEST_BYTES", 2 * LAYOUTS[FULL].page_bytes)
    monkeypatch.setattr(calibration, "REPEATS", 1)
    late = workshop.scene(seed, SMALL, None)
    for _ in range(5):
        late.act()
    late.pump()
    for worker in late.engine._workers.values():
        worker.close()
        worker.work()
    assert late.engine.memory_bytes == {GPU: 0, CPU: 0}
    late.end()


@pytest.mark.parametrize("seed", range(3))
def test_a_load_runs_beside_a_forward_that_does_not_use_its_slots(
    seed: int, workshop: Workshop
) -> None:
    """With the last use of its slots as its point, a load ends while later compute still runs.

    A backup that was submitted before it, with the running compute as its point, changes nothing.
    """
    late = workshop.scene(seed)
    compute = late.device.compute
    last_use = late.device.event()
    last_use.record(compute)
    late.device.run_until(last_use.query)
    late.device.held.add(compute.cuda_stream)
    forward = late.device.event()
    late.device.enqueue(compute, lambda: None)
    forward.record(compute)
    for at, (direction, event) in enumerate(((BACKUP, forward), (LOAD_BACK, last_use))):
        after = late.engine.event_after(event)
        move = Move(FULL, slots(at), slots(at + 5))
        late.engine.submit(page_order(at, direction, (move,), late.pools, after))
    late.pump()
    while late.device.step():
        pass
    assert late.engine.poll() == (Completion(1, ok=True),)
    late.device.held.clear()
    late.device.synchronize()
    assert late.engine.poll() == (Completion(0, ok=True),)


@pytest.mark.parametrize("seed", range(3))
def test_copies_break_no_capture(seed: int, workshop: Workshop) -> None:
    """While another thread captures a graph, no call of the engine breaks the capture.

    Lanes allocate nothing, and the threads that enqueue, poll and wait say that they are apart.
    """
    late = workshop.scene(seed)
    late.device.captured_by = -1
    for _ in range(10):
        late.act()
    late.pump()
    late.device.captured_by = None
    late.end()


def test_a_capture_is_told_from_work(workshop: Workshop) -> None:
    """A stream that is captured is no point for a copy, and waits for no layer."""
    late = workshop.scene(0)
    late.engine.submit(page_order(1, LOAD_BACK, (Move(FULL, slots(1), slots(2)),), late.pools))
    late.pump()
    late.device.captured_by = get_ident()
    with pytest.raises(BadArgument, match="after: is a stream that is being captured"):
        late.engine.event_after(None)
    with pytest.raises(BadArgument, match="stream: is being captured; wait for layers before"):
        late.engine.wait_layer(1, 0)
    assert late.engine.poll() in {(), (Completion(1, ok=True),)}
    assert late.device.complaints == []


@pytest.mark.parametrize("point", [3, "now", object()], ids=["number", "text", "object"])
def test_a_point_is_a_stream_or_an_event(point: object, workshop: Workshop) -> None:
    """Anything else is refused, also where an event of the engine is expected."""
    late = workshop.scene(0)
    with pytest.raises(BadArgument, match=r"after: is a .*; give a CUDA stream, an event, or None"):
        late.engine.event_after(point)
    order = page_order(1, LOAD_BACK, (Move(FULL, slots(1), slots(2)),), late.pools, point)
    with pytest.raises(BadArgument, match=r"after: is a .*; give what `event_after` returns"):
        late.engine.submit(order)


# Slot uploads: numbers reach kernels, also where the ring comes round before a copy has run.

NUMBERS = 20


def make_uploads(workshop: Workshop, seed: int) -> tuple[LateDevice, SlotUploads]:
    """A small ring, whose memory has no other owner any more."""
    device, gpu = workshop.gpu(seed)
    made = slot_uploads.slot_uploads(device, gpu.driver, gpu.device, NUMBERS)
    device.synchronize()
    return device, made


@pytest.mark.parametrize("seed", range(10))
def test_numbers_are_there_when_kernels_read_them(seed: int, workshop: Workshop) -> None:
    """A kernel on the stream reads what was uploaded before it, however late it runs."""
    device, uploads = make_uploads(workshop, seed)
    stream, read, given = device.stream(), list[list[int]](), list[list[int]]()
    for at in range(40):
        firsts = (100 * at, 100 * at + 50)
        arrays = [slots(*range(first, first + device.rng.randrange(6))) for first in firsts]
        given.append(np.concatenate(arrays).tolist())
        tensors = uploads.upload(arrays, stream)
        assert [len(each) for each in tensors] == [len(each) for each in arrays]
        device.enqueue(stream, partial(lambda each: read.append(torch.cat(each).tolist()), tensors))
        device.progress(2)
    device.synchronize()
    assert read == given
    assert device.complaints == []


def test_the_largest_order_fits(workshop: Workshop) -> None:
    """As many numbers as the ring has go in one upload, again and again."""
    device, uploads = make_uploads(workshop, 0)
    stream = device.stream()
    assert uploads.numbers == NUMBERS
    for at in range(3):
        (tensor,) = uploads.upload([np.full(NUMBERS, at, np.int32)], stream)
        device.synchronize()
        assert tensor.tolist() == [at] * NUMBERS
