"""Liger-Kernel's own Triton kernels beside ours, by value, on a GPU: both against FP64, and against each other.

Everywhere, the same checks run with PyTorch's operations in Liger's place, which shows that the checks work.
"""

import importlib.util
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

import truenorm
from c_library import relative_l2

ROWS, N, EPS = 300, 1000, 1e-5
needs_liger = pytest.mark.skipif(
    not (
        torch.cuda.is_available()
        and truenorm._C.has_cuda()
        and all(importlib.util.find_spec(name) for name in ("triton", "liger_kernel"))
    ),
    reason="NO GPU, CUDA backend, triton or liger_kernel: Liger's kernels were not compared",
)


class Case(NamedTuple):
    norm: str  # "rms", "add" or "layer"
    dtype: torch.dtype
    mode: str = "gemma"
    offset: float = 0.0


CASES = [
    *(Case("rms", dtype, mode, offset) for dtype in (torch.float32, torch.bfloat16)
      for mode in ("llama", "gemma", "none") for offset in (0.0, 1.0)),
    *(Case("add", dtype, mode, offset) for dtype in (torch.float32, torch.bfloat16)
      for mode in ("llama", "gemma") for offset in (0.0, 1.0)),
    *(Case("layer", dtype) for dtype in (torch.float32, torch.bfloat16)),
]  # fmt: skip
IDS = ["-".join(str(part).removeprefix("torch.") for part in case) for case in CASES]
cases = pytest.mark.parametrize("case", CASES, ids=IDS)


def ours(case, x, residual, weight, bias):
    if case.norm == "rms":
        return truenorm.rms_norm(x, weight, eps=EPS, offset=case.offset, casting_mode=case.mode)
    if case.norm == "add":
        return truenorm.fused_add_rms_norm(x, residual, weight, eps=EPS, offset=case.offset, casting_mode=case.mode)
    return truenorm.layer_norm(x, N, weight, bias, EPS)


def ligers(case, x, residual, weight, bias):
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    if case.norm == "rms":
        return LigerRMSNormFunction.apply(x, weight, EPS, case.offset, case.mode, False)
    if case.norm == "add":
        return LigerFusedAddRMSNormFunction.apply(x, residual, weight, EPS, case.offset, case.mode, False)
    return LigerLayerNormFunction.apply(x, weight, bias, EPS)


def pytorchs(case, x, residual, weight, bias):
    """The same from PyTorch's operations, rounded where the casting mode says; in FP64 it is the exact result."""
    s = x + residual if case.norm == "add" else x
    wide = s.dtype if case.mode == "none" or s.dtype is torch.float64 else torch.float32
    if case.norm == "layer":
        return F.layer_norm(x.to(wide), (N,), weight.to(wide), bias.to(wide), EPS).to(x.dtype)
    normalised = s.to(wide) * (s.to(wide).square().mean(-1, keepdim=True) + EPS).rsqrt()
    if case.mode == "llama":
        normalised = normalised.to(s.dtype).to(wide)
    y = (normalised * (weight.to(wide) + case.offset)).to(s.dtype)
    return y if case.norm == "rms" else (y, s)


def drawn(case, device):
    """x, residual, weight, bias; then the gradients of the outputs."""
    shapes = (ROWS, N), (ROWS, N), (N,), (N,), (ROWS, N), (ROWS, N)
    return [torch.randn(shape).to(case.dtype).to(device) for shape in shapes]


def results(function, case, given):
    """The outputs and the gradients of the inputs that the norm has, by name; the inputs must stay as they were."""
    before = [t.clone() for t in given]
    names = {"rms": "xw", "add": "xrw", "layer": "xwb"}[case.norm]
    leaves = dict(zip("xrwb", (t.detach().requires_grad_() for t in given[:4])))
    outputs = function(case, *leaves.values())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    gradients = torch.autograd.grad(outputs, [leaves[name] for name in names], given[4 : 4 + len(outputs)])
    assert all(torch.equal(a, b) for a, b in zip(given, before))
    return dict(zip("ys", outputs)) | {f"d{name}": gradient for name, gradient in zip(names, gradients)}


def compare(our, their, exact, case):
    """Ours at most as far from FP64 as theirs, and close to theirs, in each result."""
    # Noise: of FP32 sums in another order; of roundings to BF16, which are the same but for a few near ties.
    margin, noise = {torch.float32: (1.25, 1.2e-7), torch.bfloat16: (1.01, 0.0)}[case.dtype]
    # Apart: each by one rounding, with llama's mode by two or three; with "none" theirs computes in BF16 throughout.
    near = {torch.float32: 2e-6, torch.bfloat16: 5e-3 if case.mode != "none" else 2e-2}[case.dtype]
    assert our.keys() == their.keys() == exact.keys()
    for name, right in exact.items():
        assert our[name].dtype == their[name].dtype == case.dtype and our[name].shape == their[name].shape, name
        error, their_error = relative_l2(our[name], right), relative_l2(their[name], right)
        assert error <= max(margin * their_error, noise), (name, error, their_error)
        assert relative_l2(our[name], their[name].detach()) <= near, (name, relative_l2(our[name], their[name]))
        # And no element on its own: the largest difference, by the largest value.
        worst = (our[name].double() - their[name].double()).abs().max() / right.abs().max()
        assert worst <= 4 * near, (name, worst.item())


def compared(our_function, their_function, case, device):
    given = drawn(case, device)
    exact = results(pytorchs, case, [t.double() for t in given])
    compare(results(our_function, case, given), results(their_function, case, given), exact, case)


@needs_liger
@cases
def test_liger_kernels_and_ours(case):
    compared(ours, ligers, case, "cuda")


@cases
def test_pytorch_in_their_place(case, device):
    compared(ours, pytorchs, case, device)


@pytest.mark.parametrize("norm", ["rms", "add", "layer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_wrong_is_found(norm, dtype, device):
    def weight_off(case, x, residual, weight, bias):
        return ours(case, x, residual, weight * (1 + 2**-7), bias)

    def one_element_off(case, x, residual, weight, bias):
        outputs = ours(case, x, residual, weight, bias)
        y = outputs[0] if isinstance(outputs, tuple) else outputs
        spoilt = y.clone()
        spoilt[7, 5] += 0.2
        return (spoilt, *outputs[1:]) if isinstance(outputs, tuple) else spoilt

    for wrong in (weight_off, one_element_off):
        with pytest.raises(AssertionError):
            compared(wrong, pytorchs, Case(norm, dtype), device)


@pytest.mark.parametrize("norm", ["rms", "add"])
def test_one_rounding_more_is_found(norm, device):
    def rounded_as_llama(case, *given):
        return ours(case._replace(mode="llama"), *given)

    with pytest.raises(AssertionError, match="'y'"):
        compared(rounded_as_llama, pytorchs, Case(norm, torch.bfloat16), device)
