"""truenorm's norms in Hugging Face models: `patch(model)`, `unpatch(model)`, and `patching()` for models to be made.

    import truenorm.integrations.transformers as truenorm_transformers

    print(truenorm_transformers.patch(model))

A norm is replaced by giving the module a subclass of its own class, of the same name, whose forward is ours. Parameters,
attributes, hooks, state_dict keys and isinstance checks stay as they were, and copies and pickles of the model are
patched too. `torch.nn.LayerNorm` and the model library's classes are never changed. Which norm a module is, its own
code says (`_variants.py`); what is not known is left alone and reported. This works for any PyTorch model, from
transformers or not, and through wrappers such as PEFT's.

The output's type stays what the module's own would be: Llama with FP32 weights returns FP32 for BF16 x, and nn.LayerNorm
returns FP32 under CUDA's autocast (whose list of what runs in FP32 has layer_norm, and not rms_norm). What truenorm does
not have (FP64, meta, sparse and nested tensors, forward-mode derivatives) still goes through the module's own code.

A limit: an attribute other than weight, bias and eps that is changed after the patch, such as a flag that a module's own
forward reads, is not seen. `unpatch` and patch again.
"""

import contextlib
import functools
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from truenorm import layer_norm, rms_norm
from truenorm import nn as ours
from truenorm._parameters import parameter
from truenorm.integrations._variants import Unknown, Variant, find_variant, parameter_name

__all__ = ["Report", "patch", "patching", "unpatch"]

OUR_MODULES = (ours.RMSNorm, ours.LayerNorm)
_TYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))
_NUMBER = (int, float, type(None))  # an eps; the tuple is made once, not in every call


class Entry(NamedTuple):
    """One module of a report: its name in the model, its class, and the variant it is or the reason why it was left."""

    name: str
    class_name: str
    what: str


@dataclass
class Report:
    """What `patch` or `unpatch` did. `str()` has one line for each class and variant, with the number of modules."""

    replaced: list[Entry] = field(default_factory=list)
    already: list[Entry] = field(default_factory=list)  # patched before this call, or modules of truenorm.nn
    left: list[Entry] = field(default_factory=list)  # norms that stay as they are, with the reason

    def __str__(self) -> str:
        lines = []
        for title, entries in (("replaced", self.replaced), ("already", self.already), ("left alone", self.left)):
            groups = Counter((entry.class_name, entry.what) for entry in entries)
            for (class_name, what), count in groups.items():
                names = [entry.name for entry in entries if (entry.class_name, entry.what) == (class_name, what)]
                more = ", ..." if count > 1 else ""
                lines.append(f"{title:<10} {count:>4} x {class_name} ({what}): {names[0] or '(the model)'}{more}")
        return "\n".join(lines) or "no norms found"


def patch(model: nn.Module, *, rms_norm: bool = True, layer_norm: bool = True) -> Report:
    """Has the norms of a live model computed by truenorm, forward and backward.

    Args:
        model: any module; it is changed in place.
        rms_norm, layer_norm: which kinds to replace.

    Returns a Report of what was replaced and what was left alone, and why. A second call replaces what is new since.
    Where anything was replaced, everything that `torch.compile` has compiled in this process is compiled anew at its next
    call (`torch._dynamo.reset()`): the compiler does not watch the classes of a model's modules.
    """
    _check_model("patch", model)
    report = _patch(model, rms_norm, layer_norm)
    _forget_compiled(report)
    return report


def _patch(model: nn.Module, rms_norm: bool, layer_norm: bool) -> Report:
    report = Report()
    wanted = {"RMSNorm": rms_norm, "LayerNorm": layer_norm}
    for name, module in model.named_modules():
        cls = type(module)
        if isinstance(module, OUR_MODULES):
            report.already.append(Entry(name, cls.__name__, "truenorm's own module"))
            continue
        if hasattr(cls, "_truenorm_original"):
            report.already.append(Entry(name, cls.__name__, str(cls._truenorm_variant)))
            continue
        variant = find_variant(module)
        if isinstance(variant, Unknown):
            report.left.append(Entry(name, cls.__name__, variant.reason))
        elif variant is not None and wanted[variant.norm]:
            module.__class__ = patched_class(cls, variant)
            report.replaced.append(Entry(name, cls.__name__, str(variant)))
    return report


def unpatch(model: nn.Module) -> Report:
    """Gives every patched module its own class back; the model then computes the bits that it did before `patch`.

    Returns a Report of the modules restored (`replaced`). Left alone is a module whose class another library derived
    from ours after the patch (FSDP's `fully_shard` does), or whose forward it wrapped (accelerate's hooks): undo that
    first. Compiled code is compiled anew, as by `patch`.
    """
    _check_model("unpatch", model)
    report = Report()
    for name, module in model.named_modules():
        cls = type(module)
        if "_truenorm_original" in vars(cls) and "forward" in vars(module):
            report.left.append(Entry(name, cls.__name__, "another library has wrapped the patched forward since"))
        elif "_truenorm_original" in vars(cls):
            module.__class__ = cls._truenorm_original
            report.replaced.append(Entry(name, cls.__name__, "as it was"))
        elif hasattr(cls, "_truenorm_original"):
            report.left.append(Entry(name, cls.__name__, "its class was derived from the patched one"))
    _forget_compiled(report)
    return report


def _check_model(function: str, model: object) -> None:
    if not isinstance(model, nn.Module):
        got = "None" if model is None else f"a {type(model).__name__}"
        raise TypeError(f"truenorm.integrations.transformers.{function}: model: got {got}; needs a torch.nn.Module")


def _forget_compiled(report: Report) -> None:
    if report.replaced and "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


_contexts: list[tuple[bool, bool]] = []  # of each patching() that is open: rms_norm, layer_norm
_contexts_lock = threading.Lock()


@contextlib.contextmanager
def patching(*, rms_norm: bool = True, layer_norm: bool = True) -> Iterator[None]:
    """Patches each Hugging Face model that is made inside (context manager, or decorator of a function that makes one).

        with patching():
            model = AutoModelForCausalLM.from_pretrained(...)

    The hook is `PreTrainedModel.post_init`, which every model class calls at the end of its construction, before weights
    are loaded: so one place serves all families, those of remote code too, and each module's own class decides. Models
    of other threads that are made meanwhile are patched as well. Contexts may nest and overlap in any order: a kind of
    norm is replaced while any of them asks for it.
    """
    context = (rms_norm, layer_norm)
    with _contexts_lock:
        if not _contexts:
            _hook_post_init()
        _contexts.append(context)
    try:
        yield
    finally:
        with _contexts_lock:
            _contexts.remove(context)  # an equal one is as good
            if not _contexts:
                _unhook_post_init()


def _hook_post_init() -> None:
    from transformers import PreTrainedModel

    own = PreTrainedModel.post_init

    @functools.wraps(own)
    def patching_post_init(self, *args, **kwargs):
        own(self, *args, **kwargs)
        with _contexts_lock:
            wanted = [any(kind) for kind in zip(*_contexts)]
        if wanted:  # another library may have kept this function for longer
            _patch(self, *wanted)  # nothing of a model this new was compiled

    patching_post_init._truenorm_own = own
    PreTrainedModel.post_init = patching_post_init


def _unhook_post_init() -> None:
    from transformers import PreTrainedModel

    hook = PreTrainedModel.post_init
    if hasattr(hook, "_truenorm_own"):
        PreTrainedModel.post_init = hook._truenorm_own


@functools.cache
def patched_class(original: type[nn.Module], variant: Variant) -> type[nn.Module]:
    """A subclass of `original`, under its name, that computes `variant` with truenorm."""
    forward = _forward(original, variant)

    def extra_repr(self) -> str:
        own = original.extra_repr(self)
        return f"{own}, truenorm" if own else "truenorm"

    def reduce_ex(self, protocol):
        reduced = original.__reduce_ex__(self, protocol)
        if type(self) is not cls:  # a class derived from this one sees to its own copies
            return reduced
        return _new_patched, (original, variant), *reduced[2:]

    cls = type(
        original.__name__,
        (original,),
        {
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "__doc__": original.__doc__,
            "__reduce_ex__": reduce_ex,
            "_truenorm_original": original,
            "_truenorm_variant": variant,
            "extra_repr": extra_repr,
            "forward": forward,
        },
    )
    return cls


def _new_patched(original: type[nn.Module], variant: Variant) -> nn.Module:
    """An empty module for copy and pickle to fill: generated classes cannot be found by name."""
    return object.__new__(patched_class(original, variant))


def _forward(original: type[nn.Module], variant: Variant) -> Callable[..., Tensor]:
    own_forward = original.forward
    name = parameter_name(original)
    if variant.norm == "LayerNorm":
        norm = _torch_layer_norm
    else:
        norm = _torch_rms_norm if variant.shaped else functools.partial(_rms_norm, variant)

    def forward(self, *args, **keywords) -> Tensor:
        if len(args) == 1 and not keywords:
            x = args[0]
        elif not args and len(keywords) == 1 and name in keywords:
            x = keywords[name]
        else:
            return own_forward(self, *args, **keywords)  # raises what it always did
        y = norm(self, x) if _served(x) else NotImplemented
        return own_forward(self, x) if y is NotImplemented else y

    forward.__signature__ = inspect.signature(own_forward)  # for those who look up what to pass
    return forward


# The norms of a module, without its own code's errors: NotImplemented where that code has to serve, or to refuse.


def _rms_norm(variant: Variant, module: nn.Module, x: Tensor) -> Tensor:
    _, eps_name, scaled, offset, casting_mode, promotes, _ = variant
    eps = getattr(module, eps_name)
    weight = parameter(module, "weight") if scaled else None
    x_dtype = out_dtype = x.dtype
    columns = x.shape[-1]
    if columns == 0 or not isinstance(eps, _NUMBER):
        return NotImplemented
    if scaled:
        weight_dtype = weight.dtype
        if weight_dtype not in _TYPES or weight.shape != (columns,):
            return NotImplemented
        if promotes and weight_dtype is not x_dtype:
            out_dtype = torch.promote_types(x_dtype, weight_dtype)
    return rms_norm(x, weight, None, eps, offset=offset, casting_mode=casting_mode, out_dtype=out_dtype)


def _torch_rms_norm(module: nn.RMSNorm, x: Tensor) -> Tensor:
    shape, weight, eps = tuple(module.normalized_shape), parameter(module, "weight"), module.eps
    if not _fits(x, shape, eps, weight):
        return NotImplemented
    if len(shape) == 1:
        return rms_norm(x, weight, None, eps, casting_mode="gemma")
    weight = None if weight is None else weight.flatten()
    return rms_norm(x.flatten(-len(shape)), weight, None, eps, casting_mode="gemma").view(x.shape)


def _torch_layer_norm(module: nn.LayerNorm, x: Tensor) -> Tensor:
    shape, eps = tuple(module.normalized_shape), module.eps
    weight, bias = parameter(module, "weight"), parameter(module, "bias")
    if not _fits(x, shape, eps, weight, bias):
        return NotImplemented
    out_dtype = torch.float32 if x.is_cuda and torch.is_autocast_enabled("cuda") else x.dtype
    return layer_norm(x, shape, weight, bias, eps, out_dtype=out_dtype)


def _served(x: Tensor) -> bool:
    """Whether x is of a kind that truenorm computes, forward and backward. (PyTorch has no public word for the last.)"""
    return (
        isinstance(x, Tensor)
        and x.dtype in _TYPES
        and (x.is_cpu or x.is_cuda)
        and x.layout is torch.strided
        and not x.is_nested
        and x.dim() > 0
        and forward_ad._current_level < 0
    )


def _fits(x: Tensor, shape: tuple[int, ...], eps: float | None, *vectors: Tensor | None) -> bool:
    return (
        x.shape[-len(shape) :] == shape != ()
        and 0 not in shape
        and isinstance(eps, _NUMBER)
        and all(vector is None or (vector.dtype in _TYPES and vector.shape == shape) for vector in vectors)
    )
