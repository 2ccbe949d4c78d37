"""The C library through ctypes: the same operations on dense CPU copies, past everything that the package adds.

It is another build of the core (TRUENORM_LIBRARY), called on one thread with plain pointers.
"""

import ctypes
import os

import pytest
import torch

TYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 3),
        ("strides", ctypes.c_int64 * 3),
    ]


class _Workspace(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("counters", ctypes.c_void_p),
        ("counters_size", ctypes.c_size_t),
    ]


class _Error(ctypes.Structure):
    _fields_ = [("message", ctypes.c_char * 512)]


def _fields(*names):
    return [(name, _Tensor) for name in names]


class _Forward(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("op", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("eps", ctypes.c_float),
        ("offset", ctypes.c_float),
        ("in_place", ctypes.c_uint32),
        *_fields("x", "residual", "weight", "bias", "y", "residual_out", "mean", "rstd"),
    ]


class _Backward(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("op", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("x_dtype", ctypes.c_int32),
        ("offset", ctypes.c_float),
        ("in_place", ctypes.c_uint32),
        *_fields("dy", "ds", "s", "weight", "mean", "rstd", "dx", "dresidual", "dweight", "dbias"),
    ]


def _library():
    path = os.environ.get("TRUENORM_LIBRARY")
    if not path:
        pytest.skip("TRUENORM_LIBRARY does not name a libtruenorm.so to compare with")
    return ctypes.CDLL(path)


def _matrix(t):
    if t is None:
        return _Tensor()
    return _Tensor(t.data_ptr(), TYPES[t.dtype], 2, (t.shape[0], t.shape[1], 0), (t.shape[1], 1, 0))


def _vector(t):
    if t is None:
        return _Tensor()
    return _Tensor(t.data_ptr(), TYPES[t.dtype], 1, (t.numel(), 0, 0), (1, 0, 0))


def _run(name, args):
    library = _library()
    error = _Error()
    needed = _Workspace()
    status = getattr(library, f"tn_{name}_workspace")(None, ctypes.byref(args), ctypes.byref(needed), ctypes.byref(error))
    assert status == 0, error.message.decode()
    scratch = ctypes.create_string_buffer(max(needed.size, 1))
    given = _Workspace(ctypes.addressof(scratch), needed.size, None, 0)
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
    forward = _Forward(
        ctypes.sizeof(_Forward), op, rounding, eps, offset, 0, _matrix(x_), _matrix(r_), _vector(w_), _vector(b_),
        _matrix(y), _matrix(s), _vector(mean), _vector(rstd),
    )  # fmt: skip
    _run("forward", forward)
    out = {"y": y.reshape(shape), "s": None if s is None else s.reshape(shape)}
    if dy is None and ds is None:
        return out
    dx = torch.empty(rows, n, dtype=x.dtype)
    dresidual = None if residual is None else torch.empty(rows, n, dtype=residual.dtype)
    dweight = None if weight is None else torch.empty(n, dtype=weight.dtype)
    dbias = None if bias is None else torch.empty(n, dtype=bias.dtype)
    backward = _Backward(
        ctypes.sizeof(_Backward), op, rounding, TYPES[x.dtype], offset, 0, _matrix(dy_), _matrix(ds_),
        _matrix(x_ if s is None else s), _vector(w_), _vector(mean), _vector(rstd), _matrix(dx), _matrix(dresidual),
        _vector(dweight), _vector(dbias),
    )  # fmt: skip
    _run("backward", backward)
    out["dx"] = dx.reshape(shape)
    out["dresidual"] = None if dresidual is None else dresidual.reshape(shape)
    out["dweight"] = None if dweight is None else dweight.reshape(tail)
    out["dbias"] = None if dbias is None else dbias.reshape(tail)
    return out


def same_bits(a, b):
    """Whether two tensors hold the same bytes, element by element; NaNs may differ in payload only."""
    if a is None or b is None:
        return a is None and b is None
    a, b = a.detach().cpu().contiguous(), b.detach().cpu().contiguous()
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    integer = {4: torch.int32, 2: torch.int16}[a.element_size()]
    return bool(((a.view(integer) == b.view(integer)) | (a.isnan() & b.isnan())).all())
