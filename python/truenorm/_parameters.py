"""A module's parameters at the cost of a dictionary's look-up."""

from torch import Tensor, nn


def parameter(module: nn.Module, name: str) -> Tensor | None:
    """What `getattr(module, name)` is.

    nn.Module's own look-up first has Python fail to find the name, which takes most of a microsecond, a tenth of a small
    norm's call. Where a wrapper keeps the tensor elsewhere (a parametrization, FSDP), that look-up serves.
    """
    try:
        return module._parameters[name]
    except KeyError:
        return getattr(module, name)
