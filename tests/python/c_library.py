"""The C library through ctypes: the same operations on dense CPU copies, past everything that the package adds.

It is another build of the core (TRUENORM_LIBRARY), called on one thread with plain pointers.
"""

import ctypes
import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from c_interface import TN_DTYPES, TnBackwardArgs, TnError, TnForwardArgs, TnWorkspace, view  # noqa: E402


def _library():
    path = os.environ.get("TRUENORM_LIBRARY")
    if not path:
        pytest.skip("TRUENORM_LIBRARY does not name a libtruenorm.so to compare with")
    return ctypes.CDLL(path)


def _run(name, args):
    library = _library()
    error = TnError()
    needed = TnWorkspace()
    status = getattr(library, f"tn_{name}_workspace")(None, ctypes.byref(args), ctypes.byref(needed), ctypes.byref(error))
    assert status == 0, error.message.decode()
    scratch = ctypes.create_string_buffer(max(needed.size, 1))
    given = TnWorkspace(ctypes.addressof(scratch), needed.size, None, 0)
    status = getattr(library, f"tn_{name}")(None, ctypes.byref(args), ctypes.byref(given), ctypes.byref(error))
    assert status == 0, error.message.decode()


def _dense(t, n):
    return None if t is None else t.detach().cpu().reshape(-1, n).contiguous().clone()


def _flat(t):
    return None if t is None else t.detach().cpu().reshape(-1).contiguous().clone()


def expected(op, x, residual, weight, bias, dy, ds, *, columns=1, eps, offset, rounding, s_dtype=None, y_dtype=None):
    """What the C library makes of these inputs, forward and backward.

    Args:
        op: 1 for rms_norm, 2 for layer_norm.
        x, residual, weight, bias, dy, ds: tensors of any layout and device, or None.
        rounding: 0 once, 1 llama.

    Returns:
        dict of y, s, dx, dresidual, dweight, dbias with x's shape or the columns' shape; None where there is none.
    """
    shape, tail = x.shape, x.shape[x.dim() - columns :]
    n = tail.numel()
    x_, r_, w_, b_ = _dense(x, n), _dense(residual, n), _flat(weight), _flat(bias)
    dy_, ds_ = _dense(dy, n), _dense(ds, n)
    rows = x_.shape[0]
    y = torch.empty(rows, n, dtype=y_dtype or x.dtype)
    s = None if residual is None else torch.empty(rows, n, dtype=s_dtype or residual.dtype)
    rstd = torch.empty(rows)
    mean = torch.empty(rows) if op == 2 else None
    forward = TnForwardArgs(
        ctypes.sizeof(TnForwardArgs), op, rounding, eps, offset, 0, view(x_), view(r_), view(w_), view(b_),
        view(y), view(s), view(mean), view(rstd),
    )  # fmt: skip
    _run("forward", forward)
    out = {"y": y.reshape(shape), "s": None if s is None else s.reshape(shape)}
    if dy is None and ds is None:
        return out
    dx = torch.empty(rows, n, dtype=x.dtype)
    dresidual = None if residual is None else torch.empty(rows, n, dtype=residual.dtype)
    dweight = None if weight is None else torch.empty(n, dtype=weight.dtype)
    dbias = None if bias is None else torch.empty(n, dtype=bias.dtype)
    backward = TnBackwardArgs(
        ctypes.sizeof(TnBackwardArgs), op, rounding, TN_DTYPES[x.dtype], offset, 0, view(dy_), view(ds_),
        view(x_ if s is None else s), view(w_), view(mean), view(rstd), view(dx), view(dresidual),
        view(dweight), view(dbias),
    )  # fmt: skip
    _run("backward", backward)
    out["dx"] = dx.reshape(shape)
    out["dresidual"] = None if dresidual is None else dresidual.reshape(shape)
    out["dweight"] = None if dweight is None else dweight.reshape(tail)
    out["dbias"] = None if dbias is None else dbias.reshape(tail)
    return out


def relative_l2(values, exact):
    """How far values lie from what they should be: the relative L2 distance."""
    exact = exact.double()
    return ((values.double() - exact).norm() / exact.norm()).item()


def same_bits(a, b):
    """Whether two tensors hold the same bytes, element by element; NaNs may differ in payload only."""
    if a is None or b is None:
        return a is None and b is None
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    integer = {4: torch.int32, 2: torch.int16}[a.element_size()]
    return bool(((a.view(integer) == b.view(integer)) | (a.isnan() & b.isnan())).all())
