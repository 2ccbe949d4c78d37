"""Modules over truenorm's functions: RMSNorm, FusedAddRMSNorm, LayerNorm.

Their parameters are called `weight` and `bias` and have the shapes of `torch.nn`'s and Hugging Face's, so a state_dict of
one loads into the other. The attributes that Liger-Kernel's patched modules rely on (`weight`, `variance_epsilon`,
`offset`, `casting_mode`, `in_place`, `row_mode`) have the same names here.
"""

import numbers
import operator
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.overrides import is_tensor_like

import truenorm
from truenorm._parameters import parameter
from truenorm._torch import _C

__all__ = ["FusedAddRMSNorm", "LayerNorm", "RMSNorm"]


class _Norm(nn.Module):
    """What the three modules share: the parameters, their initial values, and rows of more than one dimension."""

    def __init__(self, normalized_shape, eps, elementwise_affine, bias, offset, out_dtype, device, dtype) -> None:
        super().__init__()
        self.normalized_shape = self._sizes(normalized_shape)
        self.eps = None if eps is None else _C.number(eps, self._function(), "eps")
        self.elementwise_affine = elementwise_affine
        self.offset = _C.number(offset, self._function(), "offset")
        self.out_dtype = out_dtype
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            values = torch.empty(self.normalized_shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if values is None else nn.Parameter(values))
        self.reset_parameters()

    def _function(self) -> str:
        """What errors call this module, after "truenorm."."""
        return f"nn.{type(self).__name__}"

    def _sizes(self, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
        what = f"truenorm.{self._function()}: normalized_shape: got"
        try:
            sizes = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
            if any(isinstance(size, bool) for size in sizes):  # an argument of another place
                raise TypeError
            sizes = tuple(operator.index(size) for size in sizes)
        except TypeError:  # 64.5, say
            got = "a Tensor" if isinstance(normalized_shape, Tensor) else repr(normalized_shape)
            raise TypeError(f"{what} {got}; needs an int or a sequence of ints") from None
        if not sizes or min(sizes) < 1:
            raise ValueError(f"{what} {sizes}; needs one or more sizes of at least 1")
        return sizes

    def reset_parameters(self) -> None:
        """Sets weight to 1 - offset, so that what multiplies is 1 (ones for Llama, zeros for Gemma), and bias to 0."""
        if self.weight is not None:
            nn.init.constant_(self.weight, 1.0 - self.offset)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def variance_epsilon(self) -> float | None:
        """The same as `eps`, by the name that Hugging Face and Liger-Kernel give it."""
        return self.eps

    @variance_epsilon.setter
    def variance_epsilon(self, value: float | None) -> None:
        self.eps = value

    def __prepare_scriptable__(self):
        """torch.jit.script asks this of every module; without it, its error would be of some line of our source."""
        raise TypeError(
            f"truenorm.{self._function()}: got torch.jit.script, which compiles Python's source; needs torch.jit.trace, "
            "torch.export or torch.compile"
        )

    def extra_repr(self) -> str:
        parts = [f"{self.normalized_shape}", f"eps={self.eps}", f"elementwise_affine={self.elementwise_affine}"]
        if self.elementwise_affine:
            parts.append(f"bias={self.bias is not None}")
        if self.offset:
            parts.append(f"offset={self.offset}")
        if self.out_dtype is not None:
            parts.append(f"out_dtype={self.out_dtype}")
        return ", ".join(parts)

    def _rows(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor with the normalised dimensions as one."""
        shape, dims = self.normalized_shape, len(self.normalized_shape)
        if not isinstance(tensor, Tensor):
            traced = is_tensor_like(tensor)  # torch.fx's Proxy, whose shape nobody knows
            if traced and dims == 1:
                return tensor
            # The flattened weight would become a constant of the graph, and train no more.
            leaf = ", since torch.fx can take several normalised dimensions as a leaf alone" if traced else ""
            raise TypeError(f"truenorm.{self._function()}: {name}: got {type(tensor).__name__}; needs a Tensor{leaf}")
        if tuple(tensor.shape[-dims:]) != shape:
            raise RuntimeError(
                f"truenorm.{self._function()}: {name}: got shape {list(tensor.shape)}; needs one that ends with "
                f"{list(shape)}"
            )
        return tensor if dims == 1 else tensor.flatten(-dims)

    def _vectors(self) -> tuple[Tensor | None, Tensor | None]:
        """weight and bias, as one dimension too."""
        weight, bias = parameter(self, "weight"), parameter(self, "bias")
        if len(self.normalized_shape) > 1:
            weight = None if weight is None else weight.flatten()
            bias = None if bias is None else bias.flatten()
        return weight, bias


class RMSNorm(_Norm):
    """Root mean square normalisation: y = x / sqrt(mean(x^2) + eps) * (weight + offset) + bias.

    Zhang & Sennrich 2019, arXiv:1910.07467. Takes the place of `torch.nn.RMSNorm` (same order of arguments), of Hugging
    Face's `*RMSNorm` and of Liger-Kernel's `LigerRMSNorm`.

    Args:
        normalized_shape: size, or sizes, of the last dimensions, which are normalised together.
        eps: added to the mean square. None: 2^-23, FP32's step, which is what `torch.nn.RMSNorm` computes with.
        elementwise_affine: False: no weight (and no bias).
        device, dtype: of the parameters; FP32, FP16 or BF16, whatever x has.
        bias: adds a bias.
        offset: added to weight in FP32 inside the kernels (Gemma: 1). The weight then starts at 1 - offset.
        casting_mode: "llama" rounds x / rms to x's type before the weight, as Llama-family models do; "gemma" (and
            "none") rounds once, at the end, as Gemma and `torch.nn.RMSNorm` do. In FP32 they are the same.
        out_dtype: the output's type; None: x's.
        in_place, row_mode: kept for code written for Liger-Kernel. Gradients are never written over another's buffer.

    Shapes: x [..., *normalized_shape] -> y of the same shape. Raises RuntimeError for another shape; what
    `truenorm.rms_norm` raises for types.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-6,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = False,
        offset: float = 0.0,
        casting_mode: str = "llama",
        out_dtype: torch.dtype | None = None,
        in_place: bool = False,
        row_mode: bool | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, offset, out_dtype, device, dtype)
        if casting_mode not in ("llama", "gemma", "none"):
            raise ValueError(
                f"truenorm.{self._function()}: casting_mode: got {casting_mode!r}; needs 'llama', 'gemma' or 'none'"
            )
        self.casting_mode = casting_mode
        self.in_place = in_place
        self.row_mode = row_mode

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, casting_mode={self.casting_mode}"

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self._vectors()
        y = truenorm.rms_norm(
            self._rows("x", x),
            weight,
            bias,
            self.eps,
            offset=self.offset,
            casting_mode=self.casting_mode,
            out_dtype=self.out_dtype,
        )
        return y.view(x.shape) if len(self.normalized_shape) > 1 else y


class FusedAddRMSNorm(RMSNorm):
    """Residual add and RMSNorm in one pass: s = round(x + residual), y = RMSNorm(s); returns (y, s).

    s is rounded to the residual's type (or residual_dtype) and is what is normalised, so the backward differentiates
    what the forward computed. Arguments as `RMSNorm`'s, and:

        residual_dtype: type of the residual stream s; None: the residual's.

    Shapes: x and residual [..., *normalized_shape] -> (y, s) of the same shape.
    """

    def __init__(self, *args, residual_dtype: torch.dtype | None = None, **options) -> None:
        super().__init__(*args, **options)
        self.residual_dtype = residual_dtype

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = self._vectors()
        y, s = truenorm.rms_norm(
            self._rows("x", x),
            weight,
            bias,
            self.eps,
            offset=self.offset,
            casting_mode=self.casting_mode,
            residual=self._rows("residual", residual),
            residual_dtype=self.residual_dtype,
            out_dtype=self.out_dtype,
        )
        return (y.view(x.shape), s.view(x.shape)) if len(self.normalized_shape) > 1 else (y, s)


class LayerNorm(_Norm):
    """Layer normalisation: y = (x - mean) / sqrt(var + eps) * (weight + offset) + bias, mean and var over the row.

    Ba, Kiros & Hinton 2016, arXiv:1607.06450. Takes the place of `torch.nn.LayerNorm` (same order of arguments); the
    variance is that of x - mean, in FP32, and each output is rounded once. Arguments and errors as `RMSNorm`'s.

    Shapes: x [..., *normalized_shape] -> y of the same shape; with a residual, (y, s) where s = round(x + residual) is
    what was normalised.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        offset: float = 0.0,
        residual_dtype: torch.dtype | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, offset, out_dtype, device, dtype)
        self.residual_dtype = residual_dtype

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        return truenorm.layer_norm(
            x,
            self.normalized_shape,
            parameter(self, "weight"),
            parameter(self, "bias"),
            self.eps,
            offset=self.offset,
            residual=residual,
            residual_dtype=self.residual_dtype,
            out_dtype=self.out_dtype,
        )
