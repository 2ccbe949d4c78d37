"""Which of truenorm's norms a module is, found by trying the module's own code.

A list of class names would be out of date with the next release of a model library, and names mislead: most `*RMSNorm`
round the normalised value before the weight ("llama"), Olmo 2's and gpt-oss's do not. So a copy of the module with
recognisable weights runs on FP32, BF16 and FP16 x of several shapes and sizes, in train and eval mode, under the CPU's
autocast, with a recognisable eps and its own, on ordinary rows and on such as hold NaN, infinities, a peak, zeros or next
to nothing, and is known where its outputs, their types and its gradients are those of exactly one of our variants. What
is not known is left alone.

PyTorch's own norms are not tried: what they compute is documented, and their `normalized_shape` says over what.
"""

import copy
import inspect
import warnings
from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor, nn

EPS_NAMES = ("variance_epsilon", "eps", "epsilon")
PROBE_EPS = 0.25  # large enough to show in BF16 that it is added to the mean square, under the root
NO_EPS = torch.finfo(torch.float32).eps  # what truenorm and F.rms_norm take for eps=None
FREE_SIZES = (64, 48)  # a norm without weight has to take any size: two are tried
SAME = [(dtype, dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)]  # of x and of the weight
MIXED = [(half, torch.float32) for half in (torch.bfloat16, torch.float16)]
AUTOCAST = (torch.float32, torch.bfloat16)
LONG = 200  # rows of a sequence
MIXED += [(torch.float32, half) for half in (torch.bfloat16, torch.float16)]
# What every module has; all else in its __dict__ may decide what it computes.
OF_ANY_MODULE = frozenset(vars(nn.Module())) | frozenset(vars(nn.Module))


class Variant(NamedTuple):
    """One norm that truenorm computes. With `promotes`, y has the wider of x's and weight's types, else x's.

    With `shaped`, it is over the last dimensions that the module's `normalized_shape` names, else over the last one.
    """

    norm: str  # "RMSNorm" or "LayerNorm"
    eps_name: str
    scaled: bool = True
    offset: float = 0.0
    casting_mode: str = "gemma"
    promotes: bool = False
    shaped: bool = False

    def __str__(self) -> str:
        if self.norm == "LayerNorm":
            return self.norm
        scale = f"offset {self.offset:g}" if self.scaled else "no weight"
        result = "y as wide as x and weight" if self.promotes else "y of x's type"
        return f"{self.norm}, {scale}, {self.casting_mode}, {result}"


class Unknown(NamedTuple):
    """Why a module that looks like a norm is left alone."""

    reason: str


_known: dict[tuple, Variant | Unknown] = {}


def find_variant(module: nn.Module) -> Variant | Unknown | None:
    """The variant that `module` computes; Unknown for a norm that is none of ours; None for what is no norm at all."""
    cls = type(module)
    if "norm" not in cls.__name__.lower():
        return None
    eps_name = next((name for name in EPS_NAMES if hasattr(module, name)), None)
    if eps_name is None:  # one that has norms in it is no norm itself
        return None if module._modules else Unknown(f"no attribute of it ({', '.join(EPS_NAMES)}) says what its eps is")
    if "forward" in module.__dict__:
        return Unknown("its forward was replaced on the instance before: patch first, or use patching()")
    if not isinstance(getattr(module, eps_name), int | float | type(None)):
        return Unknown(f"its {eps_name} is no number")
    if cls.forward is nn.LayerNorm.forward:
        return Variant("LayerNorm", eps_name, shaped=True)
    if cls.forward is nn.RMSNorm.forward:
        return Variant("RMSNorm", eps_name, scaled=module.weight is not None, shaped=True)
    if isinstance(module, nn.LayerNorm):
        return Unknown("it has a forward of its own")
    if parameter_name(cls) is None:
        return Unknown("its forward takes more than one tensor")
    if module._modules or any(name != "weight" for name in (*module._parameters, *module._buffers)):
        return Unknown("it has more than a weight")
    weight = getattr(module, "weight", None)
    if weight is not None and weight.dim() != 1:
        return Unknown("its weight does not have one dimension")
    if weight is not None and weight.numel() == 1:
        return Unknown("its weight is one gain for all columns")
    options = []
    for name, value in vars(module).items():
        if name not in OF_ANY_MODULE:
            try:
                options.append((name, _held(value)))
            except TypeError:
                what = type(value).__name__
                return Unknown(f"its attribute {name} may decide what it computes, and is of type {what}")

    # A sharded weight may show no elements.
    sizes = FREE_SIZES if weight is None else (weight.numel() or FREE_SIZES[0],)
    key = (cls, weight is None, "weight" in module._buffers, sizes, *sorted(options))
    if key not in _known:
        with torch.inference_mode(False), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of foreign code on mixes of types that its user never asked for
            _known[key] = _try_variants(module, eps_name, sizes)
    return _known[key]


def parameter_name(cls: type[nn.Module]) -> str | None:
    """How the class's forward calls its one argument; None where it takes more, or any number."""
    parameters = list(inspect.signature(cls.forward).parameters.values())[1:]
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return parameters[0].name if len(parameters) == 1 and parameters[0].kind in named else None


def _held(value: object) -> Hashable:
    """The value, with its type (1, 1.0 and True are equal), in a form that a key can hold; TypeError where none can."""
    if isinstance(value, tuple | list):
        return type(value).__name__, tuple(_held(item) for item in value)
    if isinstance(value, bool | int | float | str | torch.dtype | torch.device | type(None)):
        return type(value).__name__, repr(value)  # repr, because keys are sorted
    raise TypeError


def _try_variants(module: nn.Module, eps_name: str, sizes: tuple[int, ...]) -> Variant | Unknown:
    try:
        runs = [run for size in sizes for run in _run_probe(module, eps_name, size)]
    except Exception as error:  # whatever foreign code may raise
        said = " ".join(str(error).split())
        said = said if len(said) <= 120 else said[:117] + "..."
        return Unknown(f"its forward failed on a small input: {type(error).__name__}{': ' if said else ''}{said}")
    has_weight = getattr(module, "weight", None) is not None
    candidates = [Variant("RMSNorm", eps_name, scaled=False)]
    if has_weight:
        scaled = Variant("RMSNorm", eps_name)
        candidates += [
            scaled._replace(offset=offset, casting_mode=mode, promotes=promotes)
            for offset in (0.0, 1.0)
            for mode in ("llama", "gemma")
            for promotes in (False, True)
        ]
    matching = [variant for variant in candidates if all(_agrees(variant, run) for run in runs)]
    return matching[0] if matching else Unknown("it computes none of the norms known here")


class Run(NamedTuple):
    """One call of the module's forward: what it got and what it gave."""

    x: Tensor
    weight: Tensor
    eps: float
    y: Tensor
    gradients: tuple[Tensor | None, ...] | None  # of the sum of y^2, for x and weight; taken in FP32


def _probe_values(size: int, dims: int, eps: float) -> tuple[Tensor, Tensor]:
    """Small x and weight, the same on every call, whatever the default device and type are.

    A quarter of x's rows is as small as eps, so that eps shows; a half is large, so that a clamp does.
    """
    generator = torch.Generator(device="cpu").manual_seed(5)
    rows = max(1, 1024 // size)
    x = torch.randn(4, rows, size, generator=generator, dtype=torch.float32, device="cpu")
    weight = torch.randn(size, generator=generator, dtype=torch.float32, device="cpu")
    scales = torch.tensor([1.0, eps**0.5 or 1.0, 100.0, 10000.0], dtype=torch.float32, device="cpu")
    return (x * scales[:, None, None]).view({2: (-1,), 3: (4, rows), 4: (2, 2, rows)}[dims] + (size,)), weight


def _special_values(size: int, dims: int, eps: float) -> tuple[Tensor, Tensor]:
    """Rows of zeros, of next to nothing, with one peak, and with one infinity or NaN."""
    x, weight = _probe_values(size, 3, eps)
    rows = x[0, :1].repeat(6, 1)
    rows[0] = 0.0
    rows[1] *= 1e-20
    rows[2, size // 2] = 3e4
    rows[3, size // 3] = torch.inf
    rows[4, 0] = -torch.inf
    rows[5, -1] = torch.nan
    return (rows if dims == 2 else rows[None]), weight


def _long_values(size: int, dims: int, eps: float) -> tuple[Tensor, Tensor]:
    """A sequence longer than any other run's."""
    x, weight = _probe_values(size, 3, eps)
    rows = x[:, :1].repeat(1, LONG // 4, 1).flatten(0, 1)
    return (rows if dims == 2 else rows[None]), weight


def _run_probe(module: nn.Module, eps_name: str, size: int) -> list[Run]:
    """Runs in each mix of types that the module takes; those that tell most variants apart come first."""
    runs, own = [], getattr(module, eps_name)
    for x_dtype, weight_dtype in SAME + MIXED:
        try:
            for dims, set_eps in ((3, PROBE_EPS), (2, own), (4, own)):
                for training in (False, True):
                    runs.append(_run_once(module, eps_name, set_eps, size, dims, x_dtype, weight_dtype, training))
        except RuntimeError:
            if (x_dtype, weight_dtype) not in MIXED:  # some norms take one type only
                raise
    runs += [_run_once(module, eps_name, own, size, 2, dtype, dtype, False, _special_values) for dtype, _ in SAME]
    runs.append(_run_once(module, eps_name, own, size, 3, torch.float32, torch.float32, True, _long_values))
    with torch.autocast("cpu", torch.bfloat16):
        runs += [_run_once(module, eps_name, own, size, 3, dtype, dtype, True) for dtype in AUTOCAST]
    return runs


def _run_once(module, eps_name, set_eps, size, dims, x_dtype, weight_dtype, training, values=_probe_values) -> Run:
    eps = NO_EPS if set_eps is None else set_eps
    x, weight = values(size, dims, eps)
    x, weight = x.to(x_dtype).requires_grad_(), weight.to(weight_dtype)
    probe = copy.copy(module)  # shares the module's dictionaries: those that change are replaced
    probe._parameters, probe._buffers = dict(module._parameters), dict(module._buffers)
    if probe._parameters.get("weight") is not None:
        probe._parameters["weight"] = weight = nn.Parameter(weight)
    elif probe._buffers.get("weight") is not None:
        probe._buffers["weight"] = weight
    setattr(probe, eps_name, set_eps)
    probe.training = training
    y = type(module).forward(probe, x)  # not the call, so that no hook runs
    # Not with its own eps: beside rows that small, gradients are too large to compare.
    compared = x_dtype == weight_dtype == torch.float32 and set_eps == PROBE_EPS
    return Run(x.detach(), weight.detach(), eps, y.detach(), _gradients(y, x, weight) if compared else None)


def _gradients(y: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor | None, ...]:
    inputs = (x, weight) if weight.requires_grad else (x,)
    return torch.autograd.grad((y * y).sum(), inputs, allow_unused=True)


def _formula(variant: Variant, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out_dtype = torch.promote_types(x.dtype, weight.dtype) if variant.promotes else x.dtype
    y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    if variant.casting_mode == "llama":
        y = y.to(x.dtype).float()
    if variant.scaled:
        y = y * (weight.float() + variant.offset)
    return y.to(out_dtype)


def _agrees(variant: Variant, run: Run) -> bool:
    """Whether the variant gives y: nearly every 16-bit value equal (sums may differ in their last bits), FP32 close.

    Rounding in another place changes a fifth of the 16-bit values and more; another offset or eps changes all; a clamp
    changes a few, by more than the last bits.
    """
    x, weight, eps, y, gradients = run
    if gradients is not None:
        x = x.clone().requires_grad_()
        weight = weight.clone().requires_grad_(len(gradients) == 2)
    expected = _formula(variant, x, weight, eps)
    if y.dtype != expected.dtype or y.shape != expected.shape:
        return False
    got, want = y.float(), expected.float()
    close = torch.isclose(got, want, rtol=1e-5, atol=1e-6, equal_nan=True).float().mean().item()
    if close < (1.0 if y.dtype == x.dtype == torch.float32 else 0.99):
        return False
    if not torch.allclose(got, want, rtol=0.02, equal_nan=True):
        return False
    if gradients is None:
        return True
    return all(
        (got is None) == (want is None) and (got is None or torch.allclose(got, want, rtol=1e-3, atol=1e-3))
        for got, want in zip(gradients, _gradients(expected, x, weight))
    )
