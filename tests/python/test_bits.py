"""Results and gradients equal those of the C library bit for bit, whatever the layout, and inputs stay as they were."""

import random

import pytest
import torch

import truenorm
from c_library import expected, same_bits
from layouts import LAYOUTS, Laid

TYPES = [torch.float32, torch.float16, torch.bfloat16]
SIZES = [1, 2, 3, 7, 17, 63, 64, 127, 128, 513, 1600, 2049]


def call(op, x, residual, weight, bias, *, columns=1, eps, offset, casting_mode, s_dtype=None, y_dtype=None):
    """The package's function for op, always as (y, s or None)."""
    options = dict(eps=eps, offset=offset, residual=residual, residual_dtype=s_dtype, out_dtype=y_dtype)
    if op == 2:
        out = truenorm.layer_norm(x, x.shape[x.dim() - columns :], weight, bias, **options)
    else:
        out = truenorm.rms_norm(x, weight, bias, casting_mode=casting_mode, **options)
    return out if residual is not None else (out, None)


def leaf(t):
    """t itself (no copy) as a leaf that wants its gradient."""
    return None if t is None else t.detach().requires_grad_()


def compare(op, x, residual, weight, bias, dy, ds, **options):
    """Forward and backward through autograd against the C library; the names of what differs."""
    casting_mode = options.pop("casting_mode", "llama")
    rounding = 1 if op == 1 and casting_mode == "llama" else 0
    want = expected(op, x, residual, weight, bias, dy, ds, rounding=rounding, **options)
    x, residual, weight, bias = leaf(x), leaf(residual), leaf(weight), leaf(bias)
    y, s = call(op, x, residual, weight, bias, casting_mode=casting_mode, **options)
    outputs = [(o, g) for o, g in ((y, dy), (s, ds)) if o is not None and g is not None]
    got = {"y": y, "s": s}
    if outputs:
        torch.autograd.backward([o for o, _ in outputs], [g for _, g in outputs])
        grads = {"dx": x, "dresidual": residual, "dweight": weight, "dbias": bias}
        got.update({name: None if t is None else t.grad for name, t in grads.items()})
    return [name for name in got if not same_bits(got[name], want.get(name))]


@pytest.mark.parametrize("seed", range(120))
def test_random_calls(seed, device):
    rng = random.Random(seed)
    op, n, rows = rng.choice([1, 1, 2]), rng.choice(SIZES), rng.choice([1, 2, 5, 8, 33, 130])
    layout = {name: rng.choice(list(LAYOUTS)) for name in ("x", "residual", "dy", "ds")}
    if rng.random() < 0.5:
        one = rng.choice(TYPES)
        types = dict.fromkeys(("x", "residual", "weight", "bias", "s", "y"), one)
    else:
        types = {name: rng.choice(TYPES) for name in ("x", "residual", "weight", "bias", "s", "y")}
    laid = {name: LAYOUTS[layout[name]](rows, n, types[name], device) for name in ("x", "residual")}
    laid["dy"] = LAYOUTS[layout["dy"]](rows, n, types["y"], device)
    laid["ds"] = LAYOUTS[layout["ds"]](rows, n, types["s"], device)
    vectors = {}
    for name in ("weight", "bias"):
        buffer = torch.randn(n + 1, device=device).to(types[name])
        start = rng.choice([0, 1])
        vectors[name] = Laid(buffer[start : start + n], buffer)
    keep = {name: rng.random() < 0.7 for name in ("residual", "weight", "bias", "dy", "ds")}
    keep["ds"] = keep["ds"] and keep["residual"]
    keep["dy"] = keep["dy"] or not keep["ds"]
    shape = laid["x"].tensor.shape
    given = {name: laid[name].tensor.reshape(shape) if keep.get(name, True) else None for name in laid}
    given |= {name: vectors[name].tensor if keep[name] else None for name in vectors}
    # reshape may have copied; what it did not copy is still the laid-out memory
    options = dict(
        eps=rng.choice([1e-6, 1e-5, 0.1]),
        offset=rng.choice([0.0, 1.0]),
        casting_mode=rng.choice(["llama", "gemma", "none"]),
        s_dtype=types["s"] if keep["residual"] else None,
        y_dtype=types["y"],
    )
    wrong = compare(op, given["x"], given["residual"], given["weight"], given["bias"], given["dy"], given["ds"], **options)
    assert not wrong, (wrong, op, n, rows, layout, types, keep, options)
    for name, value in {**laid, **vectors}.items():
        assert value.unchanged(), name


@pytest.mark.parametrize("what", ["x", "residual", "dy", "ds"])
@pytest.mark.parametrize("name", list(LAYOUTS))
def test_each_layout_has_the_dense_bits(name, what, device):
    rows, n = 6, 200
    laid = LAYOUTS[name](rows, n, torch.bfloat16, device)
    shape = laid.tensor.shape
    others = [torch.randn(shape, device=device).bfloat16() for _ in range(4)]
    arguments = dict(zip(("x", "residual", "dy", "ds"), others))
    arguments[what] = laid.tensor
    weight = torch.randn(n, device=device).bfloat16()
    for op in (1, 2):
        assert not compare(
            op, arguments["x"], arguments["residual"], weight, weight, arguments["dy"], arguments["ds"], eps=1e-6, offset=0.0
        )
    assert laid.unchanged()


def test_a_view_of_qkv_is_used_in_place(device):
    buffer = torch.randn(64, 3 * 8 * 128, device=device).bfloat16()
    q = buffer[:, 8 * 128 : 2 * 8 * 128].view(64, 8, 128)
    weight = torch.ones(128, device=device).bfloat16()
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        y = truenorm.rms_norm(q, weight)
    assert "aten::contiguous" not in {event.key for event in profile.key_averages()}
    assert "aten::copy_" not in {event.key for event in profile.key_averages()}
    assert same_bits(y, truenorm.rms_norm(q.contiguous(), weight))


def test_rank_one_four_and_shapes_of_two_dimensions(device):
    for shape, columns in (((7,), 1), ((2, 3, 4, 32), 1), ((5, 8, 16), 2), ((8, 16), 2), ((2, 3, 8, 16), 2)):
        x, dy = (torch.randn(shape, device=device) for _ in range(2))
        weight, bias = (torch.randn(shape[len(shape) - columns :], device=device) for _ in range(2))
        assert not compare(2, x, None, weight, bias, dy, None, columns=columns, eps=1e-5, offset=0.0), shape
        if columns == 1:
            assert not compare(1, x, x.flip(0), weight, bias, dy, dy, eps=1e-5, offset=1.0), shape


def test_three_levels_of_rows(device):
    x = torch.randn(4, 6, 5, 40, device=device)[:, ::2, ::2, :32]
    dy = torch.randn(2, 3, 3, 4, 32, device=device).sum(0).permute(2, 0, 1, 3)
    assert not compare(1, x, None, None, None, dy, None, eps=1e-6, offset=0.0)


@pytest.mark.parametrize("rows", [1, 2, 131, 1025])
def test_threads_do_not_change_a_bit(rows):
    x = torch.randn(rows, 48, requires_grad=True)
    weight = torch.randn(48, requires_grad=True)
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = truenorm.rms_norm(x, weight)
            results.append((y, *torch.autograd.grad(y, (x, weight), torch.ones_like(y))))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(results[0], other))


def test_the_cpu_and_the_gpu_have_the_same_bits():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    for dtype in TYPES:
        x, dy = (torch.randn(300, 1000).to(dtype) for _ in range(2))
        weight = torch.randn(1000).to(dtype)
        outcomes = []
        for where in ("cpu", "cuda"):
            x_, w_ = leaf(x.to(where)), leaf(weight.to(where))
            y = truenorm.rms_norm(x_, w_)
            y.backward(dy.to(where))
            outcomes.append((y, x_.grad, w_.grad))
        assert all(same_bits(a, b) for a, b in zip(*outcomes))
