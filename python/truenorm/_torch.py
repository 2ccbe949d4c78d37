"""Loads the extension, after making sure that it was built for the torch that runs."""

import torch

from truenorm import _built_for


def _series(version):
    return ".".join(version.split("+")[0].split(".")[:2])


def mismatch(built_for, version, cxx11_abi, cuda):
    """Why an extension cannot run under a torch, or None where it can.

    Args:
        built_for: the module `_built_for`, or anything with its names.
        version, cxx11_abi, cuda: the running torch's version, its C++ ABI (bool) and its CUDA version ("" for none).

    Returns:
        One sentence, or None.
    """
    built = f"torch {built_for.TORCH_VERSION}"
    again = "install truenorm again in this environment (pip install --force-reinstall --no-deps)"
    if _series(version) != _series(built_for.TORCH_VERSION):
        return f"truenorm was built for {built} and cannot run with torch {version}: {again}."
    if bool(cxx11_abi) != built_for.CXX11_ABI:
        return f"truenorm was built for {built} with another C++ ABI than this torch {version} has: {again}."
    if built_for.CUDA and cuda.split(".")[0] != built_for.TORCH_CUDA.split(".")[0]:
        return (
            f"truenorm was built for {built} with CUDA {built_for.TORCH_CUDA}, and this torch {version} has "
            f"{'CUDA ' + cuda if cuda else 'no CUDA'}: {again}."
        )
    return None


_why = mismatch(_built_for, torch.__version__, torch._C._GLIBCXX_USE_CXX11_ABI, torch.version.cuda or "")
if _why is not None:
    raise ImportError(_why)

from truenorm import _C  # noqa: E402  (only now is it known to load)

__all__ = ["_C", "mismatch"]
