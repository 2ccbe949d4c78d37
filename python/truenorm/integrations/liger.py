"""Liger-Kernel's norms by their own names, computed by truenorm; and truenorm inside Liger-Kernel.

For code that imports their names, the import line changes and nothing else:

    from truenorm.integrations.liger import LigerRMSNorm, LigerRMSNormFunction, liger_rms_norm

For code that calls Liger-Kernel itself (its patching functions, `liger_kernel.functional`), one call before:

    import truenorm.integrations.liger
    truenorm.integrations.liger.register()
    liger_kernel.transformers.apply_liger_kernel_to_llama()

What differs from Liger-Kernel 0.8, on purpose:

* `in_place` is accepted and never acted on: theirs writes dX over dY unseen by autograd, and corrupts gradients wherever
  dY is shared (`x + norm(x)`, two uses of an output, a kept graph). Ours needs one more buffer of dY's size meanwhile.
* dW is summed in FP32 and rounded once; theirs rounds each product to 16 bits in "llama" mode.
* casting_mode "none" computes in FP32, as "gemma" does.
* CPU tensors work; strided and expanded tensors are read where they are; torch.compile sees no graph break.

Types are theirs: Y, and S of the residual add, have X's type; dX has X's, dR R's, dW W's.
"""

import sys

import torch
from torch import Tensor, nn

from truenorm import fused_add_rms_norm, layer_norm, rms_norm
from truenorm._parameters import parameter

__all__ = [
    "LigerFusedAddRMSNorm",
    "LigerFusedAddRMSNormFunction",
    "LigerLayerNorm",
    "LigerLayerNormFunction",
    "LigerRMSNorm",
    "LigerRMSNormForGemma",
    "LigerRMSNormForGemma2",
    "LigerRMSNormForGemma3",
    "LigerRMSNormForGemma4",
    "LigerRMSNormForGlm4",
    "LigerRMSNormForOlmo2",
    "LigerRMSNormForQwen3Next",
    "LigerRMSNormFunction",
    "liger_fused_add_rms_norm",
    "liger_layer_norm",
    "liger_rms_norm",
    "register",
    "unregister",
]

_CASTING_MODES = {-1: "none", 0: "llama", 1: "gemma"}  # their functions take these numbers too


def _mode(casting_mode: str | int) -> str:
    known = isinstance(casting_mode, str | int)
    mode = _CASTING_MODES.get(casting_mode, casting_mode) if known else None
    if mode not in _CASTING_MODES.values():
        raise (ValueError if known else TypeError)(
            f"truenorm.integrations.liger: casting_mode: got {casting_mode!r}, a {type(casting_mode).__name__}; "
            "needs 'llama', 'gemma' or 'none'"
        )
    return mode


# ---- Functions -------------------------------------------------------------------------------------------------------


def liger_rms_norm(
    X: Tensor,
    W: Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str | int = "llama",
    in_place: bool = True,
    row_mode: bool | None = None,
) -> Tensor:
    """Y = X / sqrt(mean(X^2) + eps) * (W + offset), X [..., N], W [N] or None; Y of X's shape and type.

    in_place and row_mode choose among their kernels and have no effect here.
    """
    return rms_norm(X, W, None, eps, offset=offset, casting_mode=_mode(casting_mode))


def liger_fused_add_rms_norm(
    X: Tensor,
    R: Tensor,
    W: Tensor,
    eps: float,
    offset: float = 0.0,
    casting_mode: str | int = "llama",
    in_place: bool = True,
) -> tuple[Tensor, Tensor]:
    """S = X + R in X's type, Y = liger_rms_norm(S, W, ...); returns (Y, S). X and R [..., N], W [N]."""
    return fused_add_rms_norm(
        X, R, W, None, eps, offset=offset, casting_mode=_mode(casting_mode), residual_dtype=X.dtype
    )


def liger_layer_norm(X: Tensor, W: Tensor, B: Tensor, eps: float) -> Tensor:
    """Y = (X - mean) / sqrt(var + eps) * W + B over the last dimension; X [..., N], W and B [N]; Y of X's type."""
    return layer_norm(X, X.shape[-1:], W, B, eps)


class LigerRMSNormFunction:
    """`LigerRMSNormFunction.apply(X, W, eps, offset=0.0, casting_mode="llama", in_place=True, row_mode=None) -> Y`."""

    apply = staticmethod(liger_rms_norm)


class LigerFusedAddRMSNormFunction:
    """`LigerFusedAddRMSNormFunction.apply(X, R, W, eps, offset=0.0, casting_mode="llama", in_place=False) -> (Y, S)`."""

    @staticmethod
    def apply(X, R, W, eps, offset=0.0, casting_mode="llama", in_place=False):
        return liger_fused_add_rms_norm(X, R, W, eps, offset, casting_mode, in_place)


class LigerLayerNormFunction:
    """`LigerLayerNormFunction.apply(X, W, B, eps) -> Y`."""

    apply = staticmethod(liger_layer_norm)


# ---- Modules ---------------------------------------------------------------------------------------------------------


def _initial(hidden_size: int, init_fn: str) -> nn.Parameter:
    if init_fn not in ("ones", "zeros"):
        raise ValueError(f"truenorm.integrations.liger: init_fn: got {init_fn!r}; needs 'ones' or 'zeros'")
    return nn.Parameter(getattr(torch, init_fn)(hidden_size))


class LigerRMSNorm(nn.Module):
    """RMSNorm over the last dimension, [..., hidden_size]; arguments, attributes and state_dict are Liger-Kernel's.

    forward and extra_repr use the attributes weight, variance_epsilon, offset, casting_mode, in_place and row_mode alone,
    so that they can be bound to another class's module, as Liger-Kernel's patching does.
    """

    def __init__(
        self,
        hidden_size,
        eps=1e-6,
        offset=0.0,
        casting_mode="llama",
        init_fn="ones",
        in_place=True,
        row_mode=None,
        elementwise_affine=True,
    ):
        super().__init__()
        weight = _initial(hidden_size, init_fn)
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", weight if elementwise_affine else None)
        self.variance_epsilon = eps
        self.offset = offset
        self.casting_mode = casting_mode
        self.in_place = in_place
        self.row_mode = row_mode

    def forward(self, hidden_states: Tensor) -> Tensor:
        return liger_rms_norm(
            hidden_states,
            parameter(self, "weight"),
            self.variance_epsilon,
            self.offset,
            self.casting_mode,
            self.in_place,
            self.row_mode,
        )

    def extra_repr(self) -> str:
        shape = None if self.weight is None else tuple(self.weight.shape)
        return (
            f"weight_shape={shape}, eps={self.variance_epsilon}, offset={self.offset}, in_place={self.in_place}, "
            f"row_mode={self.row_mode}"
        )


class LigerRMSNormForGemma(LigerRMSNorm):
    """offset 1, all in FP32, weight from zeros."""

    def __init__(
        self, hidden_size, eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=True, row_mode=None
    ):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place, row_mode)


class LigerRMSNormForGemma2(LigerRMSNorm):
    """As for Gemma."""

    def __init__(
        self, hidden_size, eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=False, row_mode=None
    ):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place, row_mode)


class LigerRMSNormForGemma3(LigerRMSNorm):
    """As for Gemma; the size is called dim."""

    def __init__(self, dim, eps=0.000001, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=False):
        super().__init__(dim, eps, offset, casting_mode, init_fn, in_place)


class LigerRMSNormForGemma4(LigerRMSNorm):
    """offset 0, all in FP32, weight from ones; no weight where with_scale is False."""

    def __init__(
        self, dim, eps=1e-6, offset=0.0, casting_mode="gemma", init_fn="ones", in_place=False, with_scale=True
    ):
        super().__init__(dim, eps, offset, casting_mode, init_fn, in_place, elementwise_affine=with_scale)
        self.with_scale = with_scale


class LigerRMSNormForOlmo2(LigerRMSNorm):
    """As LigerRMSNorm, in_place False."""

    def __init__(
        self, hidden_size, eps=1e-6, offset=0.0, casting_mode="llama", init_fn="ones", in_place=False, row_mode=None
    ):
        super().__init__(hidden_size, eps, offset, casting_mode, init_fn, in_place, row_mode)


class LigerRMSNormForGlm4(LigerRMSNormForOlmo2):
    """As LigerRMSNorm, in_place False."""


class LigerRMSNormForQwen3Next(LigerRMSNormForGemma2):
    """As for Gemma."""


class LigerFusedAddRMSNorm(nn.Module):
    """forward(hidden_states, residual) -> (Y, S); see liger_fused_add_rms_norm."""

    def __init__(self, hidden_size, eps=1e-6, offset=0.0, casting_mode="llama", init_fn="ones", in_place=False):
        super().__init__()
        self.weight = _initial(hidden_size, init_fn)
        self.variance_epsilon = eps
        self.offset = offset
        self.casting_mode = casting_mode
        self.in_place = in_place

    def forward(self, hidden_states: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        return liger_fused_add_rms_norm(
            hidden_states,
            residual,
            parameter(self, "weight"),
            self.variance_epsilon,
            self.offset,
            self.casting_mode,
            self.in_place,
        )

    def extra_repr(self) -> str:
        return (
            f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}, offset={self.offset}, in_place={self.in_place}"
        )


class LigerLayerNorm(nn.Module):
    """LayerNorm over the last dimension. As theirs, it has a bias whatever `bias` says; ours starts at zeros, not randn.

    impl and mode choose among Liger-Kernel's kernels and have no effect here.
    """

    def __init__(self, hidden_size, eps=1e-6, bias=False, init_fn="ones", impl=None, mode=None, backend=None):
        super().__init__()
        self.hidden_size = hidden_size
        self.eps = eps
        self.variance_epsilon = eps
        self.weight = _initial(hidden_size, init_fn)
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, hidden_states: Tensor) -> Tensor:
        return liger_layer_norm(hidden_states, parameter(self, "weight"), parameter(self, "bias"), self.variance_epsilon)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.variance_epsilon}"


# ---- Inside Liger-Kernel ---------------------------------------------------------------------------------------------

IMPL_NAME = "truenorm"
_FUNCTIONS = {
    "LigerRMSNormFunction": LigerRMSNormFunction,
    "LigerFusedAddRMSNormFunction": LigerFusedAddRMSNormFunction,
    "LigerLayerNormFunction": LigerLayerNormFunction,
}
_replaced: list[tuple[object, str, object]] = []  # (module, name, what it was), for unregister


def register(preference_rank: int = 10) -> None:
    """Has Liger-Kernel compute its RMSNorm, fused add and LayerNorm with truenorm, until `unregister()`.

    Two doors, because Liger-Kernel 0.8 has two: its registry (`liger_kernel.functional`, `LigerLayerNorm`), where we are
    the implementation "truenorm" of the given rank (lowest first; Triton has 50); and the `Liger*Function` names that
    its `LigerRMSNorm` and `LigerFusedAddRMSNorm` call directly, which are rebound in `liger_kernel.ops` and in its
    modules that imported them. Models patched by Liger-Kernel before the call then use truenorm, too.

    Raises ImportError where liger_kernel, or the triton that it needs, is missing; RuntimeError for a version of it
    that has no such registry.
    """
    try:
        import liger_kernel.ops
    except ImportError as error:
        raise ImportError(
            f"truenorm.integrations.liger.register: needs Liger-Kernel and triton (pip install liger-kernel): {error}"
        ) from error

    try:
        import liger_kernel.functional  # noqa: F401  declares where the registry finds the others
        from liger_kernel.backends import Capability, register_op
    except ImportError as error:
        raise RuntimeError(
            f"truenorm.integrations.liger.register: this liger_kernel has no registry of implementations: {error}"
        ) from error

    here = Capability(predicate=_serves_this_machine)
    for op, function in (
        ("rms_norm", _op(liger_rms_norm)),
        ("fused_add_rms_norm", _op(liger_fused_add_rms_norm)),
        ("layer_norm", _op(liger_layer_norm)),
    ):
        register_op(op, impl_name=IMPL_NAME, capability=here, preference_rank=preference_rank)(function)

    # `liger_kernel.ops.*` below the package stays: there the names are its Triton kernels, which impl= may ask for.
    users = [name for name in sys.modules if name.startswith(("liger_kernel.transformers", "liger_kernel.megatron"))]
    for module in [liger_kernel.ops, *(sys.modules[name] for name in users)]:
        for name, ours in _FUNCTIONS.items():
            theirs = vars(module).get(name)
            if theirs is not None and theirs is not ours:
                _replaced.append((module, name, theirs))
                setattr(module, name, ours)


def unregister() -> None:
    """Undoes `register()`, also in modules of Liger-Kernel that were first imported since, and so imported ours."""
    import liger_kernel.ops
    from liger_kernel.backends import registry
    from liger_kernel.backends.dispatch import clear_available_cache

    while _replaced:
        module, name, theirs = _replaced.pop()
        setattr(module, name, theirs)
    for key, module in list(sys.modules.items()):
        if key.startswith("liger_kernel."):
            for name, ours in _FUNCTIONS.items():
                if vars(module).get(name) is ours:
                    setattr(module, name, getattr(liger_kernel.ops, name))
    with registry._REGISTRY_LOCK:
        for key in [key for key in registry._REGISTRY if key[1] == IMPL_NAME]:
            del registry._REGISTRY[key]
    clear_available_cache()


def _serves_this_machine() -> bool:
    from liger_kernel.utils import infer_device

    return infer_device() in ("cuda", "cpu")


def _op(function):
    """The function with the `mode` keyword that their dispatcher passes; ours has one kernel for all."""

    def implementation(*args, mode=None, **options):
        if mode not in (None, "default"):
            raise ValueError(f"truenorm.integrations.liger: mode: got {mode!r}; there is only 'default'")
        return function(*args, **options)

    return implementation
