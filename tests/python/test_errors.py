"""Errors say in one sentence which argument is wrong, what it got and what it needs; and the build's own check."""

import re
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import truenorm
from truenorm._torch import mismatch
from truenorm.integrations import liger

X = torch.randn(4, 64)
W = torch.randn(64)


def backward(*, dy=X, ds=None, s=X, columns=1, x_dtype=X.dtype, residual_dtype=X.dtype, bias_dtype=X.dtype):
    """The operator itself, whose arguments nobody has looked at."""
    mean = rstd = torch.zeros(4, device=s.device)
    weight = W.to(s.device)
    return torch.ops.truenorm.layer_norm_backward(
        dy, ds, s, mean, rstd, weight, columns, 0.0, x_dtype, residual_dtype, bias_dtype, [True] * 4
    )


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: truenorm.rms_norm(X, W[:3]), RuntimeError, r"weight: got shape \[3\]; needs \[64\]"),
        (lambda: truenorm.rms_norm(X, W[None]), RuntimeError, r"weight: got shape \[1, 64\]; needs \[64\]"),
        (lambda: truenorm.rms_norm(X, W, W[:1]), RuntimeError, r"bias: got shape \[1\]"),
        (lambda: truenorm.rms_norm(X.double()), RuntimeError, "x: got Double; needs Float, Half or BFloat16"),
        (lambda: truenorm.rms_norm(X, W.double()), RuntimeError, "weight: got Double"),
        (lambda: truenorm.rms_norm(X.long()), RuntimeError, "x: got Long"),
        (lambda: truenorm.rms_norm(X, out_dtype=torch.float64), RuntimeError, "out_dtype: got Double"),
        (lambda: truenorm.rms_norm(X, eps=-1.0), RuntimeError, "eps: got -1; needs a finite number"),
        (lambda: truenorm.rms_norm(X, eps=float("nan")), RuntimeError, "eps: got nan"),
        (lambda: truenorm.rms_norm(X, offset=float("inf")), RuntimeError, "offset: got inf"),
        (lambda: truenorm.rms_norm(X, casting_mode="lama"), ValueError, "casting_mode: got 'lama'"),
        (lambda: truenorm.rms_norm(X, casting_mode=1), TypeError, "casting_mode: got int; needs a string"),
        (lambda: truenorm.rms_norm(X, eps="1"), TypeError, "eps: got str; needs a number"),
        (lambda: truenorm.rms_norm(X, eps=True), TypeError, "eps: got bool; needs a number"),
        (lambda: truenorm.rms_norm(X, eps=1j), TypeError, "eps: got complex; needs a number"),
        (lambda: truenorm.rms_norm(X, eps=W[0]), TypeError, "eps: got Tensor; needs a number"),
        (lambda: truenorm.layer_norm(X, 64, offset=False), TypeError, "layer_norm: offset: got bool; needs a number"),
        (lambda: truenorm.layer_norm(X.double(), 64), RuntimeError, "truenorm.layer_norm: x: got Double"),
        (lambda: truenorm.layer_norm(X, W, W), TypeError, r"got a Tensor; .* layer_norm\(x, normalized_shape, weight"),
        (lambda: truenorm.rms_norm(X, (64,), W), TypeError, r"weight: got tuple; .*rms_norm\(x, weight, bias, eps\)"),
        (lambda: truenorm.rms_norm(X, W, 1e-6), TypeError, r"bias: got float; .*rms_norm\(x, weight, bias, eps\)"),
        (lambda: truenorm.fused_add_rms_norm(X, X, W, 1e-6), TypeError, r"fused_add_rms_norm\(x, residual, weight, bias"),
        (lambda: truenorm.layer_norm(X, 64, W, 1e-5), TypeError, r"layer_norm\(x, normalized_shape, weight, bias, eps\)"),
        (lambda: truenorm.nn.RMSNorm(64.5), TypeError, "RMSNorm: normalized_shape: got 64.5; needs an int"),
        (lambda: truenorm.nn.LayerNorm((8, 64.5)), TypeError, r"normalized_shape: got \(8, 64.5\); needs an int"),
        (lambda: truenorm.nn.RMSNorm(True), TypeError, "normalized_shape: got True; needs an int"),
        (lambda: truenorm.nn.RMSNorm(W), TypeError, "normalized_shape: got a Tensor; needs an int"),
        (lambda: truenorm.nn.RMSNorm(0), ValueError, r"normalized_shape: got \(0,\); needs one or more sizes"),
        (lambda: truenorm.nn.RMSNorm(64, eps=True), TypeError, "nn.RMSNorm: eps: got bool; needs a number"),
        (lambda: truenorm.nn.LayerNorm(64, offset="1"), TypeError, "nn.LayerNorm: offset: got str; needs a number"),
        (lambda: truenorm.nn.RMSNorm(64, casting_mode="lama"), ValueError, "nn.RMSNorm: casting_mode: got 'lama'"),
        (lambda: truenorm.nn.FusedAddRMSNorm(64)(X, 1.0), TypeError, "nn.FusedAddRMSNorm: residual: got float"),
        (lambda: liger.liger_rms_norm(X, W, 1e-6, casting_mode="lama"), ValueError, "casting_mode: got 'lama'"),
        (lambda: liger.LigerRMSNorm(64, init_fn="twos"), ValueError, "init_fn: got 'twos'"),
        (lambda: truenorm.rms_norm([1.0]), TypeError, "x: got list; needs a Tensor"),
        (lambda: truenorm.rms_norm(X, 1.0), TypeError, "weight: got float; needs a Tensor or None"),
        (lambda: truenorm.rms_norm(X, out_dtype="bf16"), TypeError, "out_dtype: got str; needs a torch.dtype"),
        (lambda: truenorm.rms_norm(torch.tensor(1.0)), RuntimeError, "x: got 0 dimensions; needs at least 1"),
        (lambda: truenorm.rms_norm(X[:, :0]), RuntimeError, "x"),
        (lambda: truenorm.fused_add_rms_norm(X, X[:1]), RuntimeError, r"residual: got shape \[1, 64\]; needs x's"),
        (lambda: truenorm.fused_add_rms_norm(X, None), TypeError, "residual: got None"),
        (lambda: truenorm.fused_add_rms_norm(X, X.double()), RuntimeError, "rms_norm: residual: got Double"),
        (lambda: truenorm.layer_norm(X, 64, residual=X.long()), RuntimeError, "layer_norm: residual: got Long"),
        (lambda: truenorm.fused_add_rms_norm(X.to("meta"), X.to("meta").long()), RuntimeError, "rms_norm: residual: got L"),
        (lambda: truenorm.fused_add_rms_norm(X, X, residual_dtype=torch.float64), RuntimeError, "residual_dtype: got D"),
        (lambda: truenorm.rms_norm(X, W.to("meta")), RuntimeError, "weight: got a tensor on meta; needs x's device, cpu"),
        (lambda: truenorm.layer_norm(X, 63), RuntimeError, r"x: got shape \[4, 64\]; needs one that ends with .*\[63\]"),
        (lambda: truenorm.layer_norm(X, ()), RuntimeError, "one dimension or more"),
        (lambda: truenorm.layer_norm("a", 64), TypeError, "x: got str; needs a Tensor"),
        (lambda: truenorm.layer_norm(X, 64.0), TypeError, "normalized_shape: got 64.0; needs an int or a sequence"),
        (lambda: truenorm.layer_norm(X, None), TypeError, "normalized_shape: got None"),
        (lambda: backward(x_dtype=torch.float64), RuntimeError, "x_dtype: got Double"),
        (lambda: backward(residual_dtype=torch.int32), RuntimeError, "residual_dtype: got Int"),
        (lambda: backward(bias_dtype=torch.float64), RuntimeError, "bias_dtype: got Double"),
        (lambda: backward(columns=3), RuntimeError, "dy: got 2 dimensions; needs at least 3"),
        (lambda: backward(columns=0), RuntimeError, "dy: got 2 dimensions; needs at least 1"),
        (lambda: backward(ds=torch.randn(8, 32)), RuntimeError, r"ds: got shape \[8, 32\]; needs the gradient's"),
        (lambda: backward(s=X.to("meta"), dy=X.to("meta"), columns=3), RuntimeError, "s: got 2 dimensions"),
        (lambda: truenorm.layer_norm(X, 64, X), RuntimeError, r"weight: got shape \[4, 64\]; needs \[64\]"),
    ],
)
def test_an_error_names_its_argument(call, kind, message):
    """And the function that it is an argument of."""
    with pytest.raises(kind, match=message) as raised:
        call()
    assert re.match(r"truenorm\.[a-zA-Z_.]+: ", str(raised.value))


class PassOn(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


NO_NUMBERS = [True, np.bool_(True), np.array(True), 1j, np.complex64(1), "1", b"1", [1.0], W, W[0], np.ones(2)]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["eps", "offset"])
def test_what_is_no_real_number_is_refused_as_eps_and_offset(name, value):
    """By functions, by modules, and where operators serve."""
    match = rf"{name}: got (numpy\.)?{type(value).__name__}; needs a number"
    for call in (
        lambda: truenorm.rms_norm(X, W, **{name: value}),
        lambda: truenorm.layer_norm(X, 64, W, **{name: value}),
        lambda: truenorm.nn.RMSNorm(64, **{name: value}),
        lambda: truenorm.nn.LayerNorm(64, **{name: value}),
    ):
        with pytest.raises(TypeError, match=match):
            call()
        with PassOn(), pytest.raises(TypeError, match=match):
            call()


def test_an_error_in_backward_is_raised_there():
    x = X.clone().requires_grad_()
    y = truenorm.rms_norm(x, W)
    with pytest.raises(RuntimeError, match="shape"):
        y.backward(torch.ones(3, 64))


def test_eps_none_is_what_pytorch_takes():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = (torch.randn(8, 64) * 1e-3).to(dtype)
        theirs = F.rms_norm(x.float(), (64,)).to(dtype)
        torch.testing.assert_close(F.rms_norm(x, (64,)), theirs)
        torch.testing.assert_close(truenorm.rms_norm(x, eps=None, casting_mode="none"), theirs)


BUILT = types.SimpleNamespace(TORCH_VERSION="2.11.0+cu130", CXX11_ABI=True, TORCH_CUDA="13.0", CUDA=True)


@pytest.mark.parametrize(
    "version, abi, cuda, words",
    [
        ("2.11.1+cu130", True, "13.0", None),
        ("2.11.0+cu132", True, "13.2", None),
        ("2.12.0", True, "13.0", "built for torch 2.11.0\\+cu130 and cannot run with torch 2.12.0"),
        ("2.11.0", False, "13.0", "another C\\+\\+ ABI"),
        ("2.11.0+cpu", True, "", "this torch 2.11.0\\+cpu has no CUDA"),
        ("2.11.0+cu128", True, "12.8", "has CUDA 12.8"),
    ],
)
def test_another_torch_is_one_clear_sentence(version, abi, cuda, words):
    why = mismatch(BUILT, version, abi, cuda)
    if words is None:
        assert why is None
    else:
        assert re.search(words, why) and "\n" not in why and why.endswith(".")


def test_a_cpu_build_runs_under_any_build_of_its_torch():
    built = types.SimpleNamespace(**{**vars(BUILT), "CUDA": False})
    assert mismatch(built, "2.11.0+cpu", True, "") is None


def test_cuda_tensors_without_the_backend_are_refused_clearly():
    if not torch.cuda.is_available() or truenorm._C.has_cuda():
        pytest.skip("needs a GPU and a build without CUDA")
    with pytest.raises(RuntimeError, match="this build has kernels for cpu alone"):
        truenorm.rms_norm(X.cuda())
