#!/usr/bin/env python3
"""Time truenorm beside PyTorch on the CPU, in one process and in the same shuffled rounds.

truenorm is called through its C interface (ctypes) on the very memory of the torch tensors. Needs torch and a shared
libtruenorm:

    python bench/compare_torch.py --lib build/lib/libtruenorm.so --json compare.json

What is timed, per call:
  fwd      y (ours also stores rstd, and mean for layer_norm, as training needs; so does PyTorch inside layer_norm)
  fwd+bwd  the forward, then dx and the gradients of weight and bias: torch.autograd.grad for PyTorch
Ours is timed twice: into outputs that exist ("ours"), and allocating every output and the scratch with torch.empty
inside the timed call ("+alloc"), as PyTorch does and as its own figures therefore include. By default glibc returns
large blocks to the system when they are freed, so that each of those calls would meet new pages, whose faults take
longer than the work; here it is told to keep them, as other allocators do. --fresh-pages leaves glibc as it is.

The floor is the fastest plain copy of as many matrices that Python can make: torch's copy_ (one read) or bitwise_xor
(two reads), and memmove through ctypes, split over as many threads (one read only). None of them bypasses the caches
on its stores: `truenorm bench` measures against copies that do, which are faster on large matrices.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from c_interface import TN_LAYER_NORM, TN_RMS_NORM, TnBackwardArgs, TnError, TnExec, TnForwardArgs, TnWorkspace, view

EPS = 1e-5


class Library:
    """libtruenorm with a pool of `threads` threads."""

    def __init__(self, path: str, threads: int):
        self.lib = ctypes.CDLL(path)
        self.lib.tn_version.restype = ctypes.c_char_p
        self.lib.tn_threads_create.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.tn_threads_destroy.argtypes = [ctypes.c_void_p]
        self.lib.tn_threads_destroy.restype = None
        for name in ("tn_forward", "tn_backward", "tn_backward_workspace"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p] * 4
        self.error = TnError()
        pool = ctypes.c_void_p()
        self.check(self.lib.tn_threads_create(threads, ctypes.byref(pool), ctypes.byref(self.error)))
        self.exec = TnExec(struct_size=ctypes.sizeof(TnExec), threads=pool)

    def close(self) -> None:
        self.lib.tn_threads_destroy(self.exec.threads)

    def version(self) -> str:
        return self.lib.tn_version().decode()

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"truenorm: status {status}: {self.error.message.decode()}")

    def forward(self, args: TnForwardArgs) -> None:
        self.check(self.lib.tn_forward(ctypes.byref(self.exec), ctypes.byref(args), None, ctypes.byref(self.error)))

    def backward(self, args: TnBackwardArgs, workspace: TnWorkspace) -> None:
        self.check(
            self.lib.tn_backward(
                ctypes.byref(self.exec), ctypes.byref(args), ctypes.byref(workspace), ctypes.byref(self.error)
            )
        )

    def workspace_bytes(self, args: TnBackwardArgs) -> int:
        sizes = TnWorkspace()
        self.check(
            self.lib.tn_backward_workspace(
                ctypes.byref(self.exec), ctypes.byref(args), ctypes.byref(sizes), ctypes.byref(self.error)
            )
        )
        return sizes.size


def keep_freed_memory() -> bool:
    """Has glibc serve large blocks from its heap, and keep them when they are freed."""
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(mmap_max, 0)) and bool(mallopt(trim_threshold, 2**31 - 1))


# ---- One operation on one shape ------------------------------------------------------------------------------------


@dataclass
class Inputs:
    """One set of matrices, as PyTorch's user would hold them."""

    x: torch.Tensor
    dy: torch.Tensor


@dataclass
class Outputs:
    y: torch.Tensor
    mean: torch.Tensor | None
    rstd: torch.Tensor
    dx: torch.Tensor
    dweight: torch.Tensor
    dbias: torch.Tensor | None
    scratch: torch.Tensor


class Problem:
    """An operation on M x N matrices of one type; weights stay, inputs come in sets that are used in turn."""

    def __init__(self, op: str, m: int, n: int, dtype: torch.dtype, rotate_bytes: int):
        self.op, self.m, self.n, self.dtype = op, m, n, dtype
        matrix_bytes = m * n * dtype.itemsize
        sets = max(1, -(-rotate_bytes // (2 * matrix_bytes)))
        self.inputs = []
        for i in range(sets):
            generator = torch.Generator().manual_seed(i)
            if i < 2:
                x = torch.randn(m, n, generator=generator).to(dtype)
                dy = torch.randn(m, n, generator=generator).to(dtype)
            else:  # the values do not matter to the time
                x, dy = self.inputs[i % 2].x.detach().clone(), self.inputs[i % 2].dy.clone()
            self.inputs.append(Inputs(x.requires_grad_(), dy))
        generator = torch.Generator().manual_seed(1000)
        self.weight = torch.randn(n, generator=generator).to(dtype).requires_grad_()
        self.bias = torch.randn(n, generator=generator).to(dtype).requires_grad_() if self.layer else None

    @property
    def layer(self) -> bool:
        return self.op == "layer_norm"

    def matrix_bytes(self) -> int:
        return self.m * self.n * self.dtype.itemsize

    def torch_forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self.layer:
            return F.layer_norm(x, (self.n,), weight, bias, EPS)
        return F.rms_norm(x, (self.n,), weight, EPS)

    def parameters(self) -> list[torch.Tensor]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def allocate(self, scratch_bytes: int) -> Outputs:
        empty = torch.empty
        return Outputs(
            y=empty(self.m, self.n, dtype=self.dtype),
            mean=empty(self.m) if self.layer else None,
            rstd=empty(self.m),
            dx=empty(self.m, self.n, dtype=self.dtype),
            dweight=empty(self.n, dtype=self.dtype),
            dbias=empty(self.n, dtype=self.dtype) if self.layer else None,
            scratch=empty(scratch_bytes, dtype=torch.uint8),
        )


class Ours:
    """truenorm's calls for one problem."""

    def __init__(self, library: Library, problem: Problem):
        self.library, self.problem = library, problem
        op = TN_LAYER_NORM if problem.layer else TN_RMS_NORM
        # Views that stay are made once, as a binding would; data pointers of matrices are set for each call.
        self.forward_args = TnForwardArgs(struct_size=ctypes.sizeof(TnForwardArgs), op=op, eps=EPS)
        self.backward_args = TnBackwardArgs(struct_size=ctypes.sizeof(TnBackwardArgs), op=op)
        first = problem.inputs[0]
        outputs = problem.allocate(0)
        f, b = self.forward_args, self.backward_args
        f.x, f.y = view(first.x), view(outputs.y)
        f.weight, f.bias = view(problem.weight), view(problem.bias)
        f.mean, f.rstd = view(outputs.mean), view(outputs.rstd)
        b.dy, b.s, b.dx = view(first.dy), view(first.x), view(outputs.dx)
        b.weight, b.mean, b.rstd = f.weight, f.mean, f.rstd
        b.dweight, b.dbias = view(outputs.dweight), view(outputs.dbias)
        self.workspace = TnWorkspace()
        self.scratch_bytes = library.workspace_bytes(b)
        self.workspace.size = self.scratch_bytes
        self.outputs = [problem.allocate(self.scratch_bytes) for _ in problem.inputs]
        for out in self.outputs:  # so that no timed call meets an untouched page
            out.y.zero_()
            out.dx.zero_()

    def forward(self, index: int, out: Outputs | None = None) -> Outputs:
        out = out or self.outputs[index]
        f = self.forward_args
        f.x.data = self.problem.inputs[index].x.data_ptr()
        f.y.data = out.y.data_ptr()
        f.rstd.data = out.rstd.data_ptr()
        if out.mean is not None:
            f.mean.data = out.mean.data_ptr()
        self.library.forward(f)
        return out

    def full(self, index: int, out: Outputs | None = None) -> Outputs:
        out = self.forward(index, out)
        b = self.backward_args
        b.dy.data = self.problem.inputs[index].dy.data_ptr()
        b.s.data = self.problem.inputs[index].x.data_ptr()
        b.rstd.data = out.rstd.data_ptr()
        b.dx.data = out.dx.data_ptr()
        b.dweight.data = out.dweight.data_ptr()
        if out.mean is not None and out.dbias is not None:
            b.mean.data = out.mean.data_ptr()
            b.dbias.data = out.dbias.data_ptr()
        self.workspace.data = out.scratch.data_ptr()
        self.library.backward(b, self.workspace)
        return out

    def forward_allocating(self, index: int) -> Outputs:
        p = self.problem
        out = Outputs(
            y=torch.empty(p.m, p.n, dtype=p.dtype),
            mean=torch.empty(p.m) if p.layer else None,
            rstd=torch.empty(p.m),
            dx=p.weight,
            dweight=p.weight,
            dbias=None,
            scratch=p.weight,
        )
        return self.forward(index, out)

    def full_allocating(self, index: int) -> Outputs:
        return self.full(index, self.problem.allocate(self.scratch_bytes))


class Theirs:
    """PyTorch's calls for one problem. They allocate their outputs."""

    def __init__(self, problem: Problem):
        self.problem = problem

    def forward(self, index: int) -> torch.Tensor:
        with torch.no_grad():
            return self.problem.torch_forward(self.problem.inputs[index].x, self.problem.weight, self.problem.bias)

    def full(self, index: int) -> tuple[torch.Tensor, ...]:
        p = self.problem
        x = p.inputs[index].x
        y = p.torch_forward(x, p.weight, p.bias)
        return y, *torch.autograd.grad(y, [x, *p.parameters()], p.inputs[index].dy)


class Copies:
    """Plain copies of the same matrices: the floor, as far as Python reaches."""

    def __init__(self, ours: Ours, threads: int, pool: ThreadPoolExecutor):
        self.ours, self.threads, self.pool = ours, threads, pool
        self.bits = torch.int32 if ours.problem.dtype.itemsize == 4 else torch.int16

    def torch_copy(self, index: int) -> None:
        self.ours.outputs[index].y.copy_(self.ours.problem.inputs[index].x.detach())

    def memmove(self, index: int) -> None:
        size = self.ours.problem.matrix_bytes()
        to, source = self.ours.outputs[index].y.data_ptr(), self.ours.problem.inputs[index].x.data_ptr()
        step = -(-size // self.threads)
        # ctypes lets go of the interpreter's lock during the call, so that the parts run side by side.
        parts = [(to + at, source + at, min(step, size - at)) for at in range(step, size, step)]
        others = [self.pool.submit(ctypes.memmove, *part) for part in parts]
        ctypes.memmove(to, source, min(step, size))
        for other in others:
            other.result()

    def torch_xor(self, index: int) -> None:
        inputs = self.ours.problem.inputs[index]
        torch.bitwise_xor(
            inputs.x.detach().view(self.bits),
            inputs.dy.view(self.bits),
            out=self.ours.outputs[index].dx.view(self.bits),
        )

    def forward_ways(self) -> dict[str, Callable[[int], None]]:
        return {"torch copy_": self.torch_copy, "memmove": self.memmove}

    def full_ways(self) -> dict[str, Callable[[int], None]]:
        def with_xor(forward: Callable[[int], None]) -> Callable[[int], None]:
            def both(index: int) -> None:
                forward(index)
                self.torch_xor(index)

            return both

        return {f"{name}, then xor": with_xor(way) for name, way in self.forward_ways().items()}


# ---- Accuracy --------------------------------------------------------------------------------------------------------


def errors(got: torch.Tensor, exact: torch.Tensor) -> dict[str, float]:
    difference = got.double() - exact
    return {
        "max_abs": difference.abs().max().item(),
        "rel_l2": (difference.norm() / exact.norm()).item(),
    }


def accuracy(
    problem: Problem, ours: Outputs, theirs: tuple[torch.Tensor, ...]
) -> dict[str, dict[str, dict[str, float]]]:
    """Errors of both against FP64 autograd on the same (rounded) inputs."""
    wide = [t.detach().double().requires_grad_() for t in (problem.inputs[0].x, *problem.parameters())]
    x, weight, bias = wide[0], wide[1], wide[2] if problem.layer else None
    if problem.layer:
        y = F.layer_norm(x, (problem.n,), weight, bias, EPS)
    else:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight
    exact = [y.detach(), *torch.autograd.grad(y, wide, problem.inputs[0].dy.double())]
    names = ["y", "dx", "dweight", "dbias"][: len(exact)]
    mine = [ours.y, ours.dx, ours.dweight, ours.dbias][: len(exact)]
    return {
        name: {"ours": errors(a, e), "torch": errors(b.detach(), e), "rounded": errors(e.to(problem.dtype), e)}
        for name, a, b, e in zip(names, mine, theirs, exact, strict=True)
    }


# ---- Timing ----------------------------------------------------------------------------------------------------------


@dataclass
class Timed:
    call: Callable[[int], object]
    calls: int = 1
    seconds: list[float] = field(default_factory=list)

    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(entries: dict[str, Timed], sets: int, rounds: int, sample_seconds: float) -> None:
    """One sample of each entry a round, in shuffled order; every call takes the next set of matrices."""
    turn = 0

    def sample(entry: Timed) -> float:
        nonlocal turn
        time.sleep(0.005)  # the threads of whoever came before may be spinning still
        entry.call(turn)
        turn = (turn + 1) % sets
        start = time.perf_counter()
        for _ in range(entry.calls):
            entry.call(turn)
            turn = (turn + 1) % sets
        return (time.perf_counter() - start) / entry.calls

    for entry in entries.values():
        sample(entry)
        entry.calls = max(1, min(1000, round(sample_seconds / sample(entry))))
    names = list(entries)
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            entries[name].seconds.append(sample(entries[name]))


def compare(library: Library, problem: Problem, args: argparse.Namespace, threads: int, pool) -> list[dict]:
    ours, theirs = Ours(library, problem), Theirs(problem)
    copies = Copies(ours, threads, pool)
    entries = {
        "fwd ours": Timed(ours.forward),
        "fwd again": Timed(ours.forward),
        "fwd alloc": Timed(ours.forward_allocating),
        "fwd torch": Timed(theirs.forward),
        "fwd+bwd ours": Timed(ours.full),
        "fwd+bwd again": Timed(ours.full),
        "fwd+bwd alloc": Timed(ours.full_allocating),
        "fwd+bwd torch": Timed(theirs.full),
    }
    floors = {"fwd": copies.forward_ways(), "fwd+bwd": copies.full_ways()}
    for direction, ways in floors.items():
        entries.update({f"{direction} copy {name}": Timed(way) for name, way in ways.items()})
    exactness = accuracy(problem, ours.full(0), theirs.full(0))  # before a copy writes to the outputs
    measure(entries, len(problem.inputs), args.rounds, args.sample_ms * 1e-3)
    rows = []
    for direction, ways in floors.items():
        way = min(ways, key=lambda name: entries[f"{direction} copy {name}"].median())
        time_of = {name: entries[f"{direction} {name}"].median() for name in ("ours", "again", "alloc", "torch")}
        floor = entries[f"{direction} copy {way}"].median()
        rows.append(
            {
                "op": problem.op,
                "direction": direction,
                "m": problem.m,
                "n": problem.n,
                "dtype": str(problem.dtype).removeprefix("torch."),
                "threads": threads,
                "ours_us": time_of["ours"] * 1e6,
                "ours_alloc_us": time_of["alloc"] * 1e6,
                "torch_us": time_of["torch"] * 1e6,
                "torch_over_ours": time_of["torch"] / time_of["ours"],
                "torch_over_alloc": time_of["torch"] / time_of["alloc"],
                "floor_us": floor * 1e6,
                "floor_way": way,
                "ours_over_floor": time_of["ours"] / floor,
                "noise": time_of["again"] / time_of["ours"],
                "workspace_bytes": ours.scratch_bytes,
                "samples_us": {
                    k: [s * 1e6 for s in v.seconds] for k, v in entries.items() if k.startswith(f"{direction} ")
                },
                "accuracy": {k: v for k, v in exactness.items() if (k == "y") == (direction == "fwd")},
            }
        )
    return rows


# ---- The command -----------------------------------------------------------------------------------------------------


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(": ", 1)[1]
    except OSError:
        pass
    return platform.processor() or "unknown"


HEADING = (
    f"{'operation':<11} {'what':<8} {'shape':>11} {'type':<9} {'thr':>3} {'ours us':>9} {'+alloc us':>9} "
    f"{'torch us':>9} {'torch/ours':>10} {'/+alloc':>8} {'floor us':>9} {'ours/floor':>10} {'noise':>6}  floor"
)


def row_text(row: dict) -> str:
    shape = f"{row['m']}x{row['n']}"
    return (
        f"{row['op']:<11} {row['direction']:<8} {shape:>11} {row['dtype']:<9} {row['threads']:>3} {row['ours_us']:>9.0f} "
        f"{row['ours_alloc_us']:>9.0f} {row['torch_us']:>9.0f} {row['torch_over_ours']:>10.2f} "
        f"{row['torch_over_alloc']:>8.2f} {row['floor_us']:>9.0f} {row['ours_over_floor']:>10.2f} {row['noise']:>6.2f}  "
        f"{row['floor_way']}"
    )


def accuracy_text(rows: list[dict]) -> str:
    lines = [
        "Errors against FP64 on the same inputs; rounded: FP64's result rounded to the type, the least there can be.",
        f"{'operation':<11} {'shape':>11} {'type':<9} {'output':<8} {'ours max':>10} {'torch max':>10} "
        f"{'rounded':>10} {'ours L2':>10} {'torch L2':>10} {'rounded':>10}",
    ]
    for row in rows:
        for name, e in row["accuracy"].items():
            shape = f"{row['m']}x{row['n']}"
            values = [e[who][what] for what in ("max_abs", "rel_l2") for who in ("ours", "torch", "rounded")]
            lines.append(
                f"{row['op']:<11} {shape:>11} {row['dtype']:<9} {name:<8} " + " ".join(f"{v:>10.2e}" for v in values)
            )
    return "\n".join(lines)


def shape(text: str) -> tuple[int, int]:
    m, n = (int(part) for part in text.split("x"))
    if m < 1 or n < 1:
        raise ValueError(text)
    return m, n


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="build/lib/libtruenorm.so", help="the shared library (default: %(default)s)")
    parser.add_argument("--op", nargs="+", default=["rms_norm", "layer_norm"], choices=["rms_norm", "layer_norm"])
    parser.add_argument("--shape", nargs="+", type=shape, default=[(8192, 4096), (2048, 768)], metavar="MxN")
    parser.add_argument("--dtype", nargs="+", default=["bf16", "f32"], choices=["bf16", "f16", "f32"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="COUNT")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each (default: %(default)s)")
    parser.add_argument("--sample-ms", type=float, default=20, help="a sample repeats its call this long")
    parser.add_argument("--rotate-mb", type=int, default=550, help="megabytes that pass before memory is met again")
    parser.add_argument("--fresh-pages", action="store_true", help="let every large allocation meet new pages")
    parser.add_argument("--json", metavar="FILE", help="also write everything as JSON; - for standard output")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    try:
        libraries = {threads: Library(args.lib, threads) for threads in args.threads}
    except (OSError, RuntimeError) as error:
        print(f"compare_torch: {error}", file=sys.stderr)
        return 2
    random.seed(1)
    pages = "kept by the allocator" if not args.fresh_pages and keep_freed_memory() else "returned to the system"
    out = sys.stderr if args.json == "-" else sys.stdout
    version = next(iter(libraries.values())).version()
    print(f"{cpu_name()}; torch {torch.__version__}, truenorm {version}; freed memory is {pages}\n{HEADING}", file=out)
    rows, exactness = [], {}
    with ThreadPoolExecutor(max_workers=max(1, max(args.threads) - 1)) as pool:
        for m, n in args.shape:
            for name in args.dtype:
                for op in args.op:
                    problem = Problem(op, m, n, dtypes[name], args.rotate_mb * 1_000_000)
                    for threads in args.threads:
                        torch.set_num_threads(threads)
                        new = compare(libraries[threads], problem, args, threads, pool)
                        print("\n".join(row_text(row) for row in new), file=out, flush=True)
                        rows += new
                        exactness.setdefault((m, n, name, op), new)  # the same for any number of threads
    print("\n" + accuracy_text([row for new in exactness.values() for row in new]), file=out)
    for library in libraries.values():
        library.close()
    if args.json:
        report = {
            "cpu": cpu_name(),
            "torch": torch.__version__,
            "truenorm": version,
            "rounds": args.rounds,
            "sample_ms": args.sample_ms,
            "rotate_mb": args.rotate_mb,
            "freed_memory": pages,
            "rows": rows,
        }
        text = json.dumps(report, indent=1) + "\n"
        if args.json == "-":
            print(text, end="")
        else:
            Path(args.json).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
