#!/usr/bin/env python3
"""What a call from Python costs: host time of forward + gradient, and of forward alone, where the device has nearly
nothing to do. Beside it the engine's own floor (`x * 1` and its gradient; `torch.empty_like` for the forward alone),
PyTorch's own norms, and Liger-Kernel's where it can be imported.

Gradients are those of x and of the weight; with a frozen weight, and of the floor, of x alone.

    bench/torch_calls.py [--device cuda] [--shape 1x4096] [--dtype bfloat16] [--json FILE]

Everything is timed in one process, in shuffled rounds of calls in a row; a round's figure is its mean, and the median of
the rounds is reported, with its ratio to the floor's, in microseconds. The device is waited for between rounds only, and
rounds are short: a queue that fills up would be seen as calls that take the kernels' time, and a host that slows down for
a while should not slow down one of them alone. The floor is entered twice; the ratio of the two is the noise.
"""

import argparse
import gc
import json
import random
import statistics
import sys
import time

import torch

import truenorm


def liger(x, w):
    """Liger-Kernel's function; None, with a sentence, where it cannot be had."""
    try:
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction

        def call(x, w):
            return LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False)

        call(x, w)
    except Exception as error:  # whatever a foreign import, or a call where it has no device, raises
        return None, f"{type(error).__name__}: {error}"
    return call, None


def subjects(x, w):
    """(name, function of x, weight and bias) of everything that is timed; those that could not be had, and why."""
    n = x.shape[-1]
    functions = {
        "floor: x * 1": lambda x, w, b: x * 1,
        "floor again": lambda x, w, b: x * 1,
        "truenorm.rms_norm": lambda x, w, b: truenorm.rms_norm(x, w, eps=1e-6),
        "the same, W frozen": lambda x, w, b: truenorm.rms_norm(x, w.detach(), eps=1e-6),
        "truenorm.layer_norm": lambda x, w, b: truenorm.layer_norm(x, (n,), w, b),
        "torch rms_norm": lambda x, w, b: torch.nn.functional.rms_norm(x, (n,), w, 1e-6),
        "torch layer_norm": lambda x, w, b: torch.nn.functional.layer_norm(x, (n,), w, b),
    }
    theirs, missing = liger(x, w)
    if theirs is not None:
        functions["Liger rms_norm"] = lambda x, w, b: theirs(x, w)
    return functions, {} if missing is None else {"Liger rms_norm": missing}


def with_gradient(function, inputs, x, w, b, dy):
    torch.autograd.grad(function(x, w, b), inputs, dy)


def time_of(call, calls, synchronize):
    synchronize()
    gc.disable()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    seconds = time.perf_counter() - start
    gc.enable()
    synchronize()
    return seconds / calls * 1e6


def measure(calls_of, rounds, calls, synchronize):
    """Medians of shuffled rounds, by name."""
    times = {name: [] for name in calls_of}
    for call in calls_of.values():
        time_of(call, calls, synchronize)
    for _ in range(rounds):
        for name in random.sample(list(calls_of), len(calls_of)):
            times[name].append(time_of(calls_of[name], calls, synchronize))
    return {name: statistics.median(of) for name, of in times.items()}


def lines_of(times, floor):
    return [{"name": name, "us": round(us, 2), "ratio": round(us / times[floor], 3)} for name, us in times.items()]


def report(device, shape, dtype, rounds, calls):
    m, n = shape
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    make = lambda *sizes: torch.randn(*sizes, device=device, dtype=dtype)  # noqa: E731
    x, w, b, dy = make(m, n).requires_grad_(), make(n).requires_grad_(), make(n).requires_grad_(), make(m, n)
    functions, missing = subjects(x, w)
    # Gradients of x and of the weight: the engine takes a tenth longer for two than for the floor's one.
    inputs_of = {name: [x] if "floor" in name or "frozen" in name else [x, w] for name in functions}
    full = {name: (lambda f=f, i=inputs_of[name]: with_gradient(f, i, x, w, b, dy)) for name, f in functions.items()}
    ours_and_theirs = [name for name in functions if "floor" not in name and "frozen" not in name]
    forward = {"floor: empty_like": lambda: torch.empty_like(x), "floor again": lambda: torch.empty_like(x)}
    forward["x * 1"] = lambda: x * 1  # one allocation and one launch
    forward |= {name: (lambda f=f: f(x, w, b)) for name, f in functions.items() if name in ours_and_theirs}
    found = {"m": m, "n": n, "dtype": str(dtype).removeprefix("torch."), "device": device.type, "missing": missing}
    found["full"] = lines_of(measure(full, rounds, calls, synchronize), "floor: x * 1")
    with torch.no_grad():
        found["forward"] = lines_of(measure(forward, rounds, calls, synchronize), "floor: empty_like")
    return found


def text(found):
    lines = [f"{found['m']} x {found['n']} {found['dtype']} on {found['device']}, us a call"]
    for kind, title in [("full", "forward + gradient"), ("forward", "forward, no gradients")]:
        lines.append(f"  {title}")
        lines += [f"    {line['name']:<22} {line['us']:9.2f}  {line['ratio']:6.3f}" for line in found[kind]]
    lines += [f"  not there: {name} ({why})" for name, why in found["missing"].items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shape", default="1x4096", metavar="MxN")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--calls", type=int, default=60, help="in a row, of each round")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    shape = tuple(int(part) for part in options.shape.split("x"))
    found = report(torch.device(options.device), shape, getattr(torch, options.dtype), options.rounds, options.calls)
    print(text(found))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
