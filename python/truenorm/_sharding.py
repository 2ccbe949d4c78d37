"""How the operators run on DTensors (torch.distributed.tensor): rows where they are, columns together.

Rows are independent, so x (and the residual, gradients, statistics) may be sharded over any dimension but the normalised
ones: every rank runs the kernel on its own rows, nothing is gathered, and the gradients of weight and bias are partial
sums, which DTensor adds up once, when they are asked for. Where x comes sharded over a normalised dimension, or as
partial sums, DTensor redistributes it first.
"""

import functools
import sys


def register_if_used():
    """Tells DTensor of the operators, once, where the process has DTensor at all: importing it takes most of a second."""
    if "torch.distributed.tensor" in sys.modules:
        _register()


@functools.cache
def _register():
    import torch
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def of_rows(x, columns):
        """What x, and whatever has its rows, may be placed as; None: not sharded."""
        return [None, *range(x.ndim - columns)]

    def rows(dim):
        return Replicate() if dim is None else Shard(dim)

    def summed(dim):
        return Replicate() if dim is None else Partial()

    def if_there(t, place):
        return None if t is None else place

    def forward(x, residual, weight, bias, columns, statistics):
        found = []
        for dim in of_rows(x, columns):
            inputs = [rows(dim), if_there(residual, rows(dim)), *[if_there(v, Replicate()) for v in (weight, bias)]]
            outputs = [rows(dim), if_there(residual, rows(dim)) or Replicate(), *[rows(dim)] * statistics]
            found.append((outputs, inputs))
        return found

    def backward(dy, ds, s, statistics, weight, columns, output_mask):
        found = []
        for dim in of_rows(s, columns):
            inputs = [*[if_there(t, rows(dim)) for t in (dy, ds)], *[rows(dim)] * (1 + statistics)]
            inputs.append(if_there(weight, Replicate()))
            places = [rows(dim), rows(dim), summed(dim), summed(dim)]
            wanted = [output_mask[0], output_mask[1], output_mask[2] and weight is not None, output_mask[3]]
            found.append(([place if want else Replicate() for place, want in zip(places, wanted)], inputs))
        return found

    # An argument that is no tensor has no placement.
    def padded(found, arguments):
        return [(outputs, inputs + [None] * (arguments - len(inputs))) for outputs, inputs in found]

    ops = torch.ops.truenorm

    @register_sharding(ops.rms_norm_forward.default)
    def _(x, residual, weight, bias, eps, offset, casting_mode, residual_dtype=None, out_dtype=None):
        return padded(forward(x, residual, weight, bias, 1, 1), 9)

    @register_sharding(ops.layer_norm_forward.default)
    def _(x, residual, weight, bias, columns, eps, offset, residual_dtype=None, out_dtype=None):
        return padded(forward(x, residual, weight, bias, columns, 2), 9)

    @register_sharding(ops.rms_norm_backward.default)
    def _(dy, ds, s, rstd, weight, offset, casting_mode, x_dtype, residual_dtype, bias_dtype, output_mask):
        return padded(backward(dy, ds, s, 1, weight, 1, output_mask), 11)

    @register_sharding(ops.layer_norm_backward.default)
    def _(dy, ds, s, mean, rstd, weight, columns, offset, x_dtype, residual_dtype, bias_dtype, output_mask):
        return padded(backward(dy, ds, s, 2, weight, columns, output_mask), 12)
