"""Tensors of every layout that callers pass, each inside a buffer whose other elements must not change."""

import torch


class Laid:
    """A tensor of random values in some layout, with a copy of its whole buffer's bytes."""

    def __init__(self, view, buffer):
        self.tensor = view
        self.buffer = buffer
        self.before = buffer.clone()

    def unchanged(self):
        """Whether no byte of the buffer has changed, around the view too."""
        return torch.equal(self.buffer.view(torch.uint8), self.before.view(torch.uint8))


def _buffer(size, dtype, device):
    return torch.randn(size, device=device).to(dtype)


def dense(rows, n, dtype, device):
    """[rows, n], contiguous."""
    buffer = _buffer(rows * n, dtype, device)
    return Laid(buffer.view(rows, n), buffer)


def offset(rows, n, dtype, device):
    """Contiguous, one element into its buffer: misaligned for every vector."""
    buffer = _buffer(rows * n + 2, dtype, device)
    return Laid(buffer[1 : 1 + rows * n].view(rows, n), buffer)


def padded(rows, n, dtype, device):
    """Rows with three elements between them."""
    buffer = _buffer(rows * (n + 3), dtype, device)
    return Laid(buffer.view(rows, n + 3)[:, :n], buffer)


def step_two(rows, n, dtype, device):
    """Every second element of a row."""
    buffer = _buffer(rows * 2 * n, dtype, device)
    return Laid(buffer.view(rows, 2 * n)[:, ::2], buffer)


def transposed(rows, n, dtype, device):
    """A matrix stored by columns."""
    buffer = _buffer(rows * n, dtype, device)
    return Laid(buffer.view(n, rows).t(), buffer)


def expanded(rows, n, dtype, device):
    """One row seen `rows` times."""
    buffer = _buffer(n, dtype, device)
    return Laid(buffer.expand(rows, n), buffer)


def scalar(rows, n, dtype, device):
    """One value seen everywhere, as .sum().backward() sends it."""
    buffer = _buffer(1, dtype, device)
    return Laid(buffer.expand(rows, n), buffer)


def fused(rows, n, dtype, device):
    """The middle third of a fused QKV buffer, rows of heads: two levels of strides."""
    buffer = _buffer(rows * 3 * n, dtype, device)
    heads = 2 if rows % 2 == 0 else 1
    qkv = buffer.view(rows // heads, 3 * heads * n)
    return Laid(qkv[:, heads * n : 2 * heads * n].view(rows // heads, heads, n), buffer)


LAYOUTS = {f.__name__: f for f in (dense, offset, padded, step_two, transposed, expanded, scalar, fused)}
