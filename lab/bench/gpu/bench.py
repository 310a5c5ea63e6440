"""The GPU bench: independent sections, each of which returns values for JSON.

A section that fails does not stop the others.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import torch
import triton
from attrs import asdict, define, field, frozen

from kvcanon.lab.bench.gpu.capture import measure_capture
from kvcanon.lab.bench.gpu.interference import measure_interference
from kvcanon.lab.bench.gpu.kernel_pass import SHAPES, pass_over
from kvcanon.lab.bench.gpu.link import PIECES, Link, measure_link, measure_pieces
from kvcanon.lab.bench.gpu.order import measure_order
from kvcanon.lab.bench.gpu.sanitizer import find_sanitizer, watch_kernels
from kvcanon.lab.bench.gpu.scenes import Model
from kvcanon.lab.bench.gpu.sheets import (
    Sheet,
    capture_sheet,
    interference_sheet,
    kernel_sheet,
    link_sheet,
    order_sheet,
    piece_sheet,
    sanitizer_sheet,
    small_sheet,
    transfer_sheet,
)
from kvcanon.lab.bench.gpu.transfers import (
    REPEATS,
    MeasuredTransfer,
    measure_kernels,
    measure_small,
    measure_transfer,
)
from kvcanon.optimized.copy_plan import MIB, Limits
from kvcanon.optimized.gpu import Gpu, gpu_at

Json: TypeAlias = dict[str, object]

GIB = 1024 * MIB


USUAL = Model("mha", 32, 16)


@frozen
class Sizes:
    """How much to measure; the defaults take about five minutes on a large GPU."""

    transfer_bytes: int = GIB
    link_bytes: int = GIB // 2
    piece_total_bytes: int = 64 * MIB
    pieces: tuple[int, ...] = PIECES
    kernel_bytes: int = GIB // 4
    matrix_side: int = 8192
    products_seconds: float = 0.25
    models: tuple[Model, ...] = tuple(
        Model(kind, layers, page_size)
        for kind in ("mha", "mla")
        for layers in (8, 32, 80)
        for page_size in (1, 16, 64)
    )
    usual_model: Model = USUAL
    """For sections that measure one model only."""
    shapes: tuple[Model, ...] = SHAPES
    shape_bytes: int = 4 * MIB
    small_models: tuple[Model, ...] = tuple(
        Model(*shape) for shape in (("mha", 8, 1), ("mla", 61, 1), ("mha", 32, 1))
    )


@define
class Bench:
    """A GPU, and the results on it so far."""

    gpu: Gpu
    sizes: Sizes
    limits: Limits
    sanitizer: Callable[[], str | None] = find_sanitizer
    device: str = "unknown device"
    link: Link | None = None
    transfers: list[MeasuredTransfer] = field(factory=list)
    others: dict[str, Sheet] = field(factory=dict)
    """Tables of sections that are shown as they are."""

    def sections(self) -> Mapping[str, Callable[[], object]]:
        """The sections by name; later ones use results of earlier ones.

        Each returns a value for JSON. It may raise anything; `is_wrong` says whether the error
        means that a copy was wrong.
        """
        found: dict[str, Callable[[], object]] = {
            "environment": self._environment,
            "bytes": self._bytes,
            "second device": self._second_device,
            "sanitizer": self._sanitizer,
            "order": self._order,
            "capture": self._capture,
            "link": self._link,
            "pieces": self._pieces,
            "kernels": self._kernels,
        }
        for model in self.sizes.models:
            for scattered in (False, True):
                name = f"transfer {model}, {'any order' if scattered else 'in order'}"
                found[name] = partial(self._transfer, model, scattered=scattered)
        for model in self.sizes.small_models:
            found[f"small {model}"] = partial(self._small, model)
        found["interference"] = self._interference
        return found

    def sheets(self) -> list[Sheet]:
        """Tables of the results so far, the most important first."""
        first = [] if self.link is None else [link_sheet(self.link)]
        if self.transfers:
            first.append(transfer_sheet(self.transfers, self.link))
        return [*first, *reversed(self.others.values())]

    def _environment(self) -> Json:
        device: Json = {"name": str(self.gpu.device)}
        if self.gpu.device.type == "cuda":
            properties = torch.cuda.get_device_properties(self.gpu.device)
            device = {
                "name": properties.name,
                "multiprocessors": properties.multi_processor_count,
                "memory_bytes": properties.total_memory,
                "compute_capability": f"{properties.major}.{properties.minor}",
            }
        self.device = str(device["name"])
        return {
            "device": device,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "triton": triton.__version__,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "repeats": REPEATS,
            "system": platform.platform(),
            "driver_has_batches": self.gpu.driver.has_batches,
            "driver_cuda_version": self.gpu.driver.version(),
            "limits": asdict(self.limits),
        }

    def _bytes(self) -> Json:
        return {"transfers": pass_over(self.gpu, self.sizes.shapes, self.sizes.shape_bytes)}

    def _second_device(self) -> Json:
        """The same on a device that is not the first, and not the current one."""
        if self.gpu.device.type != "cuda" or torch.cuda.device_count() < 2:
            return {"not run": "there is one device"}
        second = gpu_at(torch.device("cuda", 1))
        return {"transfers": pass_over(second, self.sizes.shapes, self.sizes.shape_bytes)}

    def _sanitizer(self) -> Json:
        found = self.sanitizer()
        if found is None:
            self.others["sanitizer"] = sanitizer_sheet(())
            return {"not run": "compute-sanitizer is not installed"}
        watched = watch_kernels(found)
        self.others["sanitizer"] = sanitizer_sheet(watched)
        return {each.tool: asdict(each) for each in watched}

    def _order(self) -> Json:
        layout, size_bytes = self.sizes.usual_model.layout, self.sizes.kernel_bytes
        found = measure_order(self.gpu, layout, size_bytes, self.sizes.matrix_side, self.limits)
        self.others["order"] = order_sheet(found)
        return asdict(found)

    def _capture(self) -> Json:
        layout, size_bytes = self.sizes.usual_model.layout, self.sizes.kernel_bytes
        side = self.sizes.matrix_side // 8
        found = measure_capture(self.gpu, layout, size_bytes, side, self.limits)
        self.others["capture"] = capture_sheet(found)
        return asdict(found)

    def _link(self) -> Json:
        self.link = measure_link(self.gpu, self.sizes.link_bytes)
        return asdict(self.link)

    def _pieces(self) -> list[Json]:
        found = measure_pieces(self.gpu, self.sizes.piece_total_bytes, self.sizes.pieces)
        self.others["pieces"] = piece_sheet(found)
        return [asdict(each) for each in found]

    def _kernels(self) -> list[Json]:
        layout = self.sizes.usual_model.layout
        found = measure_kernels(self.gpu, layout, self.sizes.kernel_bytes)
        self.others["kernels"] = kernel_sheet(found)
        return [asdict(each) for each in found]

    def _transfer(self, model: Model, *, scattered: bool) -> Json:
        size_bytes = self.sizes.transfer_bytes
        found = measure_transfer(self.gpu, model, size_bytes, self.limits, scattered=scattered)
        self.transfers.append(found)
        shares = None if self.link is None else found.shares(self.link)
        page_bytes = model.layout.page_bytes
        # Where pages are scattered, each is a piece of its own.
        through_ring = not scattered or page_bytes >= self.limits.least_piece_bytes
        way = "ring" if through_ring else "kernel"
        return asdict(found) | {"shares": shares, "page_bytes": page_bytes, "way": way}

    def _small(self, model: Model) -> Json:
        found = measure_small(self.gpu, model.layout, self.limits)
        self.others[f"small {model}"] = small_sheet(model, found)
        races = {str(way): [asdict(race) for race in each] for way, each in found.items()}
        return {"model": asdict(model), **races}

    def _interference(self) -> list[Json]:
        found = measure_interference(
            self.gpu,
            self.sizes.usual_model.layout,
            self.sizes.kernel_bytes,
            self.sizes.matrix_side,
            self.sizes.products_seconds,
        )
        self.others["interference"] = interference_sheet(found)
        return [asdict(each) | {"slowdown": each.slowdown} for each in found]


def bench_on_gpu(transfer_bytes: int) -> Bench:
    """A bench on the current GPU. Raises: CudaError where there is none."""
    sizes = Sizes(transfer_bytes=transfer_bytes)
    return Bench(gpu_at(torch.device("cuda")), sizes, Limits())
