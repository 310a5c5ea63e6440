"""The GPU bench: it runs every section, finds wrong bytes, and keeps results of earlier sections.

It runs here on a GPU that is not there (`gpu.fake`), at sizes that an interpreter can take. What it
measured then means nothing; that every section runs to its end does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from attrs import define, evolve, field, frozen

from gpu.fake import FakeRuntime, InterpretedKernel, build_driver
from gpu.late import LateDevice, LateDriver, LateKernel
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.lab.bench.gpu import __main__ as gpu_program
from kvcanon.lab.bench.gpu import bench as bench_module
from kvcanon.lab.bench.gpu import capture, interference, link, order, scenes, transfers
from kvcanon.lab.bench.gpu.bench import Bench, Sizes
from kvcanon.lab.bench.gpu.kernel_pass import pass_over
from kvcanon.lab.bench.gpu.run import run_sections
from kvcanon.lab.bench.gpu.sanitizer import TOOLS, watch_kernels
from kvcanon.lab.bench.gpu.scenes import Model, WrongBytes, make_scene, require_same
from kvcanon.lab.bench.gpu.sheets import Sheet
from kvcanon.lab.bench.gpu.timing import timing_of
from kvcanon.lab.bench.gpu.transfers import check, measure_kernels, require_all_well
from kvcanon.lab.site.measured import FOLDER, read_measured
from kvcanon.lab.site.take_figures import take_figures
from kvcanon.optimized import calibration
from kvcanon.optimized import gpu as gpu_module
from kvcanon.optimized.copy_plan import KIB, MIB, Limits
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import PageTransfer
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import FULL

LIMITS = Limits(ring_slot_bytes=8 * KIB, piece_bytes=2 * KIB, least_piece_bytes=1, group_bytes=1)
MODEL = Model("mha", 2, 1)
SIZES = Sizes(
    transfer_bytes=24 * KIB,
    link_bytes=4 * KIB,
    piece_total_bytes=4 * KIB,
    pieces=(512, 2048),
    kernel_bytes=16 * KIB,
    matrix_side=32,
    products_seconds=0.01,
    models=(MODEL, Model("mla", 1, 1)),
    shapes=(MODEL, Model("mla fp8", 1, 1)),
    shape_bytes=16 * KIB,
    usual_model=MODEL,
    small_models=(MODEL,),
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> CudaDriver:
    """A driver that copies at once."""
    return CudaDriver(str(build_driver(tmp_path_factory.mktemp("driver"))))


@pytest.fixture
def gpu(driver: CudaDriver, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A fake GPU for small sizes."""
    monkeypatch.setattr(pages, "MOVE_PAGES", InterpretedKernel())
    for module in (interference, link, transfers, calibration):
        monkeypatch.setattr(module, "REPEATS", 1)
    monkeypatch.setattr(transfers, "PROGRAMS", (1, 4))
    monkeypatch.setattr(order, "ROUNDS", 2)
    monkeypatch.setattr(capture, "GRAPHS", 1)
    monkeypatch.setattr(calibration, "LARGEST_BYTES", 3 * MODEL.layout.page_bytes)
    return Gpu(torch.device("cpu"), FakeRuntime(), driver)


def test_every_section_runs_to_its_end(gpu: Gpu) -> None:
    """Each section returns a value for JSON, and together they make the tables."""
    bench = Bench(gpu, SIZES, LIMITS, sanitizer=lambda: None)
    found = {name: section() for name, section in bench.sections().items()}
    assert json.loads(json.dumps(found)) == found
    assert len([name for name in found if name.startswith("transfer ")]) == 4
    assert len(bench.sheets()) == 9
    assert found["bytes"] == {"transfers": 16}
    assert found["second device"] == {"not run": "there is one device"}
    assert found["sanitizer"] == {"not run": "compute-sanitizer is not installed"}
    for sheet in bench.sheets():
        assert sheet.rows
        assert {len(row) for row in sheet.rows} == {len(sheet.headings)}
    transfer = found["transfer mha x2, page 1, any order"]
    assert isinstance(transfer, dict)
    assert transfer["size_bytes"] == 3 * MODEL.layout.page_bytes
    assert set(transfer["shares"]) == {"backup", "load", "both"}


def test_what_was_found_is_kept_as_a_table(gpu: Gpu, tmp_path: Path) -> None:
    """The file of `make gpu` makes the table of the docs; one that is cut short is refused."""
    sections = Bench(gpu, SIZES, LIMITS).sections()
    file, kept = tmp_path / "gpu.json", tmp_path / FOLDER / "gpu_transfers.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"question": "How fast?"}')
    names = [name for name in sections if name in {"environment", "link"} or "transfer " in name]
    run_sections(sections, names, file, "make gpu")
    take_figures("gpu_transfers", [file], tmp_path)
    figures = read_measured(tmp_path)["gpu_transfers"]
    assert (figures.command, figures.old, len(figures.rows)) == ("make gpu", "", 2)
    assert figures.rows[0][:2] == ("mha, 2 layers", "1")
    found = json.loads(file.read_text("utf-8"))
    share = found["sections"]["transfer mha x2, page 1, any order"]["shares"]["backup"]
    assert figures.rows[0][6] == f"{share:.2f}"
    before = kept.read_text("utf-8")
    for missing in ("environment", "link", "transfer mha x2, page 1, in order"):
        less = {name: each for name, each in found["sections"].items() if name != missing}
        file.write_text(json.dumps({**found, "sections": less}), "utf-8")
        with pytest.raises(UsageError, match="run its command again, to its end"):
            take_figures("gpu_transfers", [file], tmp_path)
    for other in ("[]", "3", '{"sections": []}', '{"sections": {"environment": 3, "link": 1}}'):
        file.write_text(other, "utf-8")
        with pytest.raises(UsageError, match="is no file of which"):
            take_figures("gpu_transfers", [file], tmp_path)
    assert kept.read_text("utf-8") == before


def test_scenes_are_on_the_gpus_device(gpu: Gpu) -> None:
    """A default device that an engine sets for its model, here one without bytes, changes nothing.

    What is timed is on the device of the GPU.
    """
    try:
        torch.set_default_device("meta")
        scene = make_scene(gpu, MODEL.layout, 1000, scattered=True)
        with CudaEngine(scene.pools, LIMITS, direct_bytes=0, gpu=gpu) as engine:
            check(scene, engine, gpu)
        assert measure_kernels(gpu, MODEL.layout, 1000)
    finally:
        torch.set_default_device(None)


def test_a_section_stands_alone(gpu: Gpu) -> None:
    """Without the speed of the link, only the shares are missing."""
    bench = Bench(gpu, SIZES, LIMITS)
    name = "transfer mha x2, page 1, in order"
    found = bench.sections()[name]()
    assert isinstance(found, dict)
    assert found["shares"] is None
    assert [len(sheet.rows) for sheet in bench.sheets()] == [1]


class Crooked:
    """A kernel that corrupts the result of the right one."""

    def __init__(self, spoil: Callable[[], None]) -> None:
        self._kernel, self._spoil = InterpretedKernel(), spoil

    def __getitem__(self, grid: tuple[int]) -> pages.Launch:
        def launch(*arguments: torch.Tensor | int, **constants: int) -> None:
            self._kernel[grid](*arguments, **constants)
            self._spoil()

        return launch


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("given", [True, False], ids=["in a page", "beside the pages"])
def test_a_wrong_byte_is_found(
    gpu: Gpu, direction: Direction, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong byte is found, in a moved page and in a page that must not change."""
    scene = make_scene(gpu, PageLayout(2, (4, 4)), 64, scattered=True)
    backup = direction is Direction.BACKUP
    to = scene.host_slots if backup else scene.other_device_slots
    others = set(range(len(scene.pools.slab(FULL)))) - set(to.tolist())
    slot = int(to[3]) if given else others.pop()

    def spoil() -> None:
        target = scene.pools.slab(FULL)[slot] if backup else scene.pools.planes(FULL)[1][1, slot]
        target[2] ^= 1

    # All layers in one launch, so that the byte is wrong once.
    limits = evolve(LIMITS, group_bytes=MIB)
    with CudaEngine(scene.pools, limits, direct_bytes=10**6, gpu=gpu) as engine:
        check(scene, engine, gpu)
        scenes.poison_device(scene)
        for plane in scene.pools.planes(FULL):
            plane.random_(0, 256)
        scene.pools.slab(FULL).fill_(scenes.POISON)
        if not backup:
            transfers.run(scene, engine, gpu, Direction.BACKUP)
            scenes.poison_device(scene)
        monkeypatch.setattr(pages, "MOVE_PAGES", Crooked(spoil))
        transfers.run(scene, engine, gpu, direction)
    words = "moved page 3 of" if given else "wrote to slots that it was not given"
    with pytest.raises(WrongBytes, match=f"{direction} {words}"):
        require_same(scene, direction)


@pytest.mark.parametrize(
    ("direct_bytes", "programs"), [(0, pages.PROGRAMS), (MIB, pages.HOST_PROGRAMS)]
)
def test_the_host_takes_few_programs(
    gpu: Gpu, direct_bytes: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel over host memory waits for the link, and leaves the GPU to compute."""
    scene = make_scene(gpu, PageLayout(2 * pages.PROGRAMS, (4,)), 2 * KIB, scattered=True)
    grids = list[int]()

    class Noted(InterpretedKernel):
        def __getitem__(self, grid: tuple[int]) -> pages.Launch:
            grids.append(*grid)
            return super().__getitem__(grid)

    monkeypatch.setattr(pages, "MOVE_PAGES", Noted())
    with CudaEngine(scene.pools, LIMITS, direct_bytes=direct_bytes, gpu=gpu) as engine:
        transfers.run(scene, engine, gpu, Direction.BACKUP)
    assert max(grids) == programs


def test_the_pass_finds_a_wrong_byte(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that runs under a sanitizer compares what its kernels move, too."""

    class Idle:
        def __getitem__(self, grid: tuple[int]) -> pages.Launch:
            return lambda *_, **__: None

    monkeypatch.setattr(pages, "MOVE_PAGES", Idle())
    with pytest.raises(WrongBytes, match="backup moved page 0"):
        pass_over(gpu, (MODEL,), 16 * KIB)


@pytest.mark.parametrize(
    ("ends", "error", "words"),
    [
        (0, None, "ERROR SUMMARY: 0 errors"),
        (77, WrongBytes, "memcheck: .*; ========= Invalid __global__ read"),
        (76, WrongBytes, "under memcheck: "),
        (3, RuntimeError, "memcheck ended with 3: "),
    ],
)
def test_a_sanitizer_watches_our_kernels(
    ends: int, error: type[Exception] | None, words: str, tmp_path: Path
) -> None:
    """Each tool watches the pass and our kernels alone; what it finds counts as wrong bytes."""
    program, noted = tmp_path / "compute-sanitizer", tmp_path / "noted"
    program.write_text(
        f'#!/bin/sh\necho "$PYTORCH_NO_CUDA_MEMORY_CACHING $*" >> {noted}\n'
        'echo "========= Invalid __global__ read of size 4"\n'
        f'echo "========= ERROR SUMMARY: 0 errors"\nexit {ends}\n'
    )
    program.chmod(0o700)
    if error is not None:
        with pytest.raises(error, match=words):
            watch_kernels(str(program))
        return
    assert [words in each.said for each in watch_kernels(str(program))] == [True] * len(TOOLS)
    calls = noted.read_text(encoding="utf-8").splitlines()
    assert [call.split()[2] for call in calls] == [*TOOLS]
    for call in calls:
        assert call.startswith("1 ")
        assert "--kernel-name kernel_substring=move_pages" in call
        assert call.endswith("-m kvcanon.lab.bench.gpu.kernel_pass")


def test_a_transfer_that_failed_is_not_timed() -> None:
    """A transfer that failed, or is missing, raises."""
    with pytest.raises(WrongBytes, match="of 1 transfers these completed"):
        require_all_well((Completion(0, ok=False),), 1)
    with pytest.raises(WrongBytes):
        require_all_well((Completion(0, ok=True),), 2)
    require_all_well((Completion(0, ok=True),), 1)


def test_bandwidth_goes_by_the_median() -> None:
    """One slow run does not count."""
    assert timing_of([1.0, 9.0, 2.0]).gigabytes_per_second(4 * 10**9) == 2.0


@define
class Told:
    """A bench with given results."""

    parts: Mapping[str, Callable[[], object]]
    device: str = "a device"
    asked_bytes: list[int] = field(factory=list)

    def on_gpu(self, transfer_bytes: int) -> Told:
        """Return this bench for any size."""
        self.asked_bytes.append(transfer_bytes)
        return self

    def sections(self) -> Mapping[str, Callable[[], object]]:
        """The given sections."""
        return self.parts

    def sheets(self) -> list[Sheet]:
        """One table."""
        return [Sheet("What was found.", ("name", "speed"), (("here", "52.1"),))]


@frozen
class Command:
    """The command with a fake bench."""

    out: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, told: Told, *options: str) -> int:
        """Run it; it writes JSON to `out`."""
        self.monkeypatch.setattr(bench_module, "bench_on_gpu", told.on_gpu)
        return main(["lab", "bench", "gpu", *options, "--json", str(self.out)])


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command."""
    return Command(tmp_path / "gpu.json", monkeypatch, capsys)


def fails(error: Exception) -> Callable[[], object]:
    """A section that raises."""

    def section() -> object:
        raise error

    return section


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (ValueError("no such thing"), 2, "kvcanon: not everything could be measured: second\n"),
        (WrongBytes("backup moved page 1 of 2 wrongly"), 1, ""),
    ],
)
def test_what_was_measured_is_kept(
    error: Exception | None, code: int, said: str, command: Command
) -> None:
    """A failed section is reported with its reason, and the results of the others are kept."""
    second = (lambda: 2) if error is None else fails(error)
    told = Told({"first": lambda: {"speed": 1}, "second": second, "third": lambda: 3})
    assert command.run(told, "--transfer-mib", "3") == code
    assert told.asked_bytes == [3 << 20]
    written = json.loads(command.out.read_text(encoding="utf-8"))
    assert written["sections"]["first"] == {"speed": 1}
    assert written["sections"]["third"] == 3
    assert set(written["errors"]) == (set() if error is None else {"second"})
    printed = command.capsys.readouterr()
    assert "bench gpu  a device" in printed.out
    assert "52.1" in printed.out
    assert (error is None) or str(error) in printed.out
    assert printed.err == said


def test_json_is_written_as_it_goes(command: Command) -> None:
    """A run that is interrupted leaves the results so far."""
    read = command.out.read_text
    told = Told({"first": lambda: 1, "second": lambda: json.loads(read())["sections"]})
    assert command.run(told) == 0
    assert json.loads(read())["sections"]["second"] == {"first": 1}


def no_driver() -> CudaDriver:
    """Raise as without a driver."""
    return CudaDriver("libcuda-of-nobody.so.1")


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        (no_driver, "no CUDA driver is installed here: libcuda-of-nobody.so.1: "),
        (object, f"torch {torch.__version__} finds no CUDA device here"),
    ],
    ids=["no driver", "no device"],
)
def test_without_a_gpu_it_says_so_in_one_line(
    installed: Callable[[], object], said: str, command: Command
) -> None:
    """Without a GPU the command prints one error line and measures nothing."""
    command.monkeypatch.setattr(gpu_module, "CudaDriver", installed)
    command.monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["lab", "bench", "gpu"]) == 2
    printed = command.capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"kvcanon: bench gpu needs a GPU: {said}")
    assert printed.err.count("\n") == 1


ALONE = """
import sys

allowed = {*sys.stdlib_module_names, "kvcanon", "attr", "attrs", "numpy", "torch", "triton"}
import torch, triton  # What these import is theirs.


class Others:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed | {*sys.modules}:
            raise ModuleNotFoundError(f"{name} is not on this machine")


sys.meta_path.insert(0, Others())
sys.argv = ["gpu", "found.json"]
import runpy
runpy.run_module("kvcanon.lab.bench.gpu", run_name="__main__")
"""


def test_make_gpu_needs_torch_triton_numpy_and_attrs_alone(tmp_path: Path) -> None:
    """It comes as far as looking for the GPU, which it says in one line."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith("make gpu needs a GPU: ")
    assert done.stderr.count("\n") == 1
    assert done.returncode == 2
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (ValueError("no such thing"), 2), (WrongBytes("page 1"), 1)]
)
def test_make_gpu_writes_what_it_found(
    error: Exception | None,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line a section, the tables, the file, and an exit code for wrong bytes and for errors."""
    second = (lambda: 2) if error is None else fails(error)
    told = Told({"first": lambda: 1, "second": second})
    monkeypatch.setattr(gpu_program, "bench_on_gpu", told.on_gpu)
    assert gpu_program.main(tmp_path / "gpu.json") == code
    found = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert found["sections"]["first"] == 1
    printed = capsys.readouterr()
    assert "1 of 2: first\n2 of 2: second\na device\n" in printed.out
    assert "here  52.1" in printed.out
    assert printed.err == ("" if error is None else f"second: {describe_exception(error)}\n")


@frozen(eq=False)
class LateWorkshop:
    """Makes GPUs that execute late."""

    library: Path
    monkeypatch: pytest.MonkeyPatch

    def gpu(self, seed: int) -> tuple[Gpu, LateDevice]:
        """A GPU, and the device behind it."""
        device = LateDevice(seed)
        self.monkeypatch.setattr(pages, "MOVE_PAGES", LateKernel(device, InterpretedKernel()))
        driver = LateDriver(str(self.library), device)
        return Gpu(torch.device("cpu"), device, driver), device


@pytest.fixture
def late(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> LateWorkshop:
    """A maker of late GPUs, for few and small rounds."""
    monkeypatch.setattr(order, "ROUNDS", 3)
    monkeypatch.setattr(capture, "GRAPHS", 2)
    monkeypatch.setattr(capture, "TRANSFERS", 3)
    return LateWorkshop(build_driver(tmp_path_factory.mktemp("late")), monkeypatch)


PAGE = PageLayout(2, (8, 8))


@pytest.mark.parametrize("seed", range(4))
def test_order_is_right_on_a_device_that_executes_late(seed: int, late: LateWorkshop) -> None:
    """Copies with a point are right beside another stream."""
    gpu, device = late.gpu(seed)
    found = order.measure_order(gpu, PAGE, 128, 4, LIMITS)
    assert found.rounds == 3
    assert device.complaints == []


def test_controls_and_overlap_show_on_a_device_that_executes_late(late: LateWorkshop) -> None:
    """In some order of the streams a control is wrong, and a load ends beside later compute."""
    found = [order.measure_order(late.gpu(seed)[0], PAGE, 128, 4, LIMITS) for seed in range(4)]
    assert any(each.controls_wrong for each in found)


@pytest.mark.parametrize("direction", list(Direction))
def test_copies_out_of_order_are_found(
    direction: Direction, late: LateWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that forgets the point of one direction is found by its bytes."""
    submit = CudaEngine.submit

    def forget(engine: CudaEngine, given: TransferOrder) -> None:
        if given.direction is direction and isinstance(given.perform, PageTransfer):
            now = engine.event_after(engine._runtime.stream())
            given = evolve(given, perform=evolve(given.perform, after=now))
        submit(engine, given)

    monkeypatch.setattr(CudaEngine, "submit", forget)
    said = []
    for seed in range(8):
        try:
            order.measure_order(late.gpu(seed)[0], PAGE, 128, 4, LIMITS)
        except WrongBytes as error:
            said.append(str(error))
    words = "a backup read pages" if direction is Direction.BACKUP else "a load overwrote pages"
    assert any(words in each for each in said)


@pytest.mark.parametrize("seed", range(3))
def test_captures_beside_copies_are_right(seed: int, late: LateWorkshop) -> None:
    """Threads that enqueue, and a poll inside of the capture, break nothing."""
    gpu, device = late.gpu(seed)
    found = capture.measure_capture(gpu, PAGE, 128, 4, LIMITS)
    assert (found.graphs, found.transfers) == (2, 6)
    assert device.complaints == []


def test_a_broken_capture_is_found(late: LateWorkshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose calls break a capture is found."""
    gpu, device = late.gpu(0)
    monkeypatch.setattr(device, "beside_captures", nullcontext)
    with pytest.raises(WrongBytes, match="copies broke the capture of a graph: an event is quer"):
        capture.measure_capture(gpu, PAGE, 128, 4, LIMITS)
