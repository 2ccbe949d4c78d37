"""truenorm inside other libraries: `transformers` (live models), `liger` (its names, its registry), `aten` (PyTorch's own).

Each is imported by its own name; importing this package imports none of them.
"""
