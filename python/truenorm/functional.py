"""The functions: rms_norm, fused_add_rms_norm and layer_norm, with gradients, on CPU and CUDA tensors.

Every result is the one that docs/numerics.md defines, bit for bit, on any device, with any strides and alignment,
in eager mode and under torch.compile. Functions run in the types that arrive, under autocast too. Tensors may be
float32, float16 or bfloat16, in any mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import handle_torch_function, is_tensor_like

from truenorm._sharding import register_if_used
from truenorm._torch import _C

__all__ = ["fused_add_rms_norm", "layer_norm", "rms_norm"]

# What torch.nn.functional.rms_norm takes without an eps, for 16-bit types too: the arithmetic is FP32 (measured with
# torch 2.11; its documentation says finfo(x.dtype).eps).
_EPS = torch.finfo(torch.float32).eps


@overload
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-6,
    *,
    offset: float = 0.0,
    casting_mode: str = "llama",
    residual: None = None,
    residual_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor: ...
@overload
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-6,
    *,
    offset: float = 0.0,
    casting_mode: str = "llama",
    residual: Tensor,
    residual_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]: ...
def rms_norm(
    x,
    weight=None,
    bias=None,
    eps=1e-6,
    *,
    offset=0.0,
    casting_mode="llama",
    residual=None,
    residual_dtype=None,
    out_dtype=None,
):
    """RMSNorm over the last dimension (Zhang & Sennrich 2019, arXiv:1910.07467).

    With s = x, or s = x + residual rounded to the residual stream's type, all in FP32:

        y = s * rstd * (weight + offset) + bias,    rstd = 1 / sqrt(mean(s^2) + eps)

    Args:
        x: [..., N], N at least 1. Strided views are read in place where their rows have at most two strides.
        weight: [N], optional.
        bias: [N], optional.
        eps: added to the mean square; at least 0. None is 2^-23, FP32's, as torch.nn.functional.rms_norm does.
        offset: added to weight in FP32 (Gemma: 1.0); without a weight it has no effect.
        casting_mode: "llama" rounds s * rstd to x's type before it meets the weight, as Llama-family models do; "gemma"
            and "none" round once, at the store.
        residual: x's shape, optional: added to x first, and the sum is returned too.
        residual_dtype: the sum's type; residual's where None.
        out_dtype: y's type; x's where None.

    Returns:
        y, of x's shape; with a residual (y, s). Both are contiguous. Gradients have their inputs' types.

    Raises:
        RuntimeError: shapes, types or devices do not fit; the message names the tensor, what it got and what it needs.
        ValueError, TypeError: casting_mode is none of the three; an argument is of another kind.
        NotImplementedError: an input carries a forward-mode tangent.
    """
    if eps is None:
        eps = _EPS
    if not is_compiling():
        out = _C.rms_norm(x, weight, bias, residual, residual_dtype, out_dtype, eps, offset, casting_mode)
        if out is not NotImplemented:
            return out
        if likes := _tensor_likes(x, weight, bias, residual):
            return handle_torch_function(
                rms_norm,
                likes,
                x,
                weight,
                bias,
                eps,
                offset=offset,
                casting_mode=casting_mode,
                residual=residual,
                residual_dtype=residual_dtype,
                out_dtype=out_dtype,
            )
        eps, offset = float(eps), float(offset)  # operators take no other kind
        register_if_used()
    y, residual_out, _ = torch.ops.truenorm.rms_norm_forward(
        x, residual, weight, bias, eps, offset, casting_mode, residual_dtype, out_dtype
    )
    return y if residual is None else (y, residual_out)


def _tensor_likes(*arguments):
    """The arguments that are no tensors but stand for them, as torch.fx's Proxy does; they see the function itself."""
    return [argument for argument in arguments if is_tensor_like(argument) and not isinstance(argument, Tensor)]


def _sizes(normalized_shape):
    """normalized_shape, which is no int, as a tuple of its sizes."""
    if isinstance(normalized_shape, Tensor):
        raise TypeError(
            "truenorm.layer_norm: normalized_shape: got a Tensor; needs an int or a sequence of ints, before the weight: "
            "layer_norm(x, normalized_shape, weight, bias)"
        )
    if hasattr(normalized_shape, "__index__"):  # numpy's integers
        return (normalized_shape.__index__(),)
    try:
        return tuple(normalized_shape)
    except TypeError:
        raise TypeError(
            f"truenorm.layer_norm: normalized_shape: got {normalized_shape!r}; needs an int or a sequence of ints"
        ) from None


def fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-6,
    *,
    offset: float = 0.0,
    casting_mode: str = "llama",
    residual_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of x + residual, and the sum: rms_norm with a residual, in the order of a transformer block.

    The sum is rounded to its type first, and as stored is what gets normalised, so that the backward differentiates
    exactly what the forward computed.

    Args:
        x: [..., N].
        residual: x's shape; float32 under a 16-bit x is an FP32 residual stream.
        weight, bias, eps, offset, casting_mode, residual_dtype, out_dtype: as in rms_norm.

    Returns:
        (y, residual_out), both of x's shape.

    Raises:
        As rms_norm; TypeError where residual is no tensor.
    """
    if residual is None:
        raise TypeError("truenorm.fused_add_rms_norm: residual: got None; needs a Tensor")
    return rms_norm(
        x,
        weight,
        bias,
        eps,
        offset=offset,
        casting_mode=casting_mode,
        residual=residual,
        residual_dtype=residual_dtype,
        out_dtype=out_dtype,
    )


@overload
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-5,
    *,
    offset: float = 0.0,
    residual: None = None,
    residual_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor: ...
@overload
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-5,
    *,
    offset: float = 0.0,
    residual: Tensor,
    residual_dtype: torch.dtype | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]: ...
def layer_norm(
    x,
    normalized_shape,
    weight=None,
    bias=None,
    eps=1e-5,
    *,
    offset=0.0,
    residual=None,
    residual_dtype=None,
    out_dtype=None,
):
    """LayerNorm over the last dimensions (Ba, Kiros & Hinton 2016, arXiv:1607.06450); called as F.layer_norm is.

    With s = x, or s = x + residual rounded to the residual stream's type, all in FP32 and rounded once, at the store:

        y = (s - mean) * rstd * (weight + offset) + bias,    rstd = 1 / sqrt(mean((s - mean)^2) + eps)

    Args:
        x: [..., *normalized_shape].
        normalized_shape: x's last dimensions, which are normalised together; an int is one dimension.
        weight, bias: normalized_shape, optional.
        eps: added to the variance; at least 0. None is 2^-23, as in rms_norm.
        offset: added to weight in FP32; without a weight it has no effect.
        residual, residual_dtype, out_dtype: as in rms_norm.

    Returns:
        y, of x's shape; with a residual (y, s). Both are contiguous. Gradients have their inputs' types.

    Raises:
        As rms_norm; RuntimeError also where normalized_shape is not how x's shape ends.
    """
    if not isinstance(x, Tensor):
        if not is_tensor_like(x):
            raise TypeError(f"truenorm.layer_norm: x: got {type(x).__name__}; needs a Tensor")
        return handle_torch_function(
            layer_norm,
            (x,),
            x,
            normalized_shape,
            weight,
            bias,
            eps,
            offset=offset,
            residual=residual,
            residual_dtype=residual_dtype,
            out_dtype=out_dtype,
        )
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else _sizes(normalized_shape)
    if not shape or tuple(x.shape[-len(shape) :]) != shape:
        raise RuntimeError(
            f"truenorm.layer_norm: x: got shape {list(x.shape)}; needs one that ends with normalized_shape, "
            f"{list(shape)}, of one dimension or more"
        )
    if eps is None:
        eps = _EPS
    columns = len(shape)
    if not is_compiling():
        out = _C.layer_norm(x, weight, bias, residual, residual_dtype, out_dtype, eps, offset, columns)
        if out is not NotImplemented:
            return out
        eps, offset = float(eps), float(offset)
        register_if_used()
    y, residual_out, _, _ = torch.ops.truenorm.layer_norm_forward(
        x, residual, weight, bias, columns, eps, offset, residual_dtype, out_dtype
    )
    return y if residual is None else (y, residual_out)
