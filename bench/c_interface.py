"""The structs of include/truenorm/truenorm.h for ctypes, and views of torch tensors as the library takes them."""

from __future__ import annotations

import ctypes

import torch

MAX_DIMS = 3

TN_DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
TN_RMS_NORM = 1
TN_LAYER_NORM = 2


class TnError(ctypes.Structure):
    _fields_ = [("message", ctypes.c_char * 512)]


class TnTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("strides", ctypes.c_int64 * MAX_DIMS),
    ]


class TnExec(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("threads", ctypes.c_void_p),
        ("isa", ctypes.c_int32),
        ("programmatic", ctypes.c_int64),
    ]


class TnWorkspace(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("counters", ctypes.c_void_p),
        ("counters_size", ctypes.c_size_t),
    ]


class TnForwardArgs(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("op", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("eps", ctypes.c_float),
        ("offset", ctypes.c_float),
        ("in_place", ctypes.c_uint32),
        ("x", TnTensor),
        ("residual", TnTensor),
        ("weight", TnTensor),
        ("bias", TnTensor),
        ("y", TnTensor),
        ("residual_out", TnTensor),
        ("mean", TnTensor),
        ("rstd", TnTensor),
    ]


class TnBackwardArgs(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("op", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("x_dtype", ctypes.c_int32),
        ("offset", ctypes.c_float),
        ("in_place", ctypes.c_uint32),
        ("dy", TnTensor),
        ("ds", TnTensor),
        ("s", TnTensor),
        ("weight", TnTensor),
        ("mean", TnTensor),
        ("rstd", TnTensor),
        ("dx", TnTensor),
        ("dresidual", TnTensor),
        ("dweight", TnTensor),
        ("dbias", TnTensor),
    ]


def view(tensor: torch.Tensor | None) -> TnTensor:
    """A tn_tensor on `tensor`'s memory; an absent one for None."""
    out = TnTensor()
    if tensor is None:
        return out
    out.data = tensor.data_ptr()
    out.dtype = TN_DTYPES[tensor.dtype]
    out.ndim = tensor.dim()
    for i in range(tensor.dim()):
        out.shape[i] = tensor.shape[i]
        out.strides[i] = tensor.stride(i)
    return out
