"""The build backend of `pip install .`: scikit-build-core, told which torch to build for and whether CUDA is wanted.

TRUENORM_CUDA in the environment, or `-C cmake.define.TRUENORM_CUDA=...`, is ON, OFF or AUTO (the default: the CUDA
backend where nvcc is and torch is a CUDA build).
"""

import glob
import os
import shutil
import sys

from scikit_build_core import build as _skbuild
from scikit_build_core.build import (  # noqa: F401  (the hooks that need nothing of ours)
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from torch_paths import NoTorchError, find_torch


def get_requires_for_build_wheel(config_settings=None):
    """PEP 517's hook."""
    _torch_or_exit()  # before anything is downloaded for the build
    return _skbuild.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings=None):
    """PEP 660's hook."""
    _torch_or_exit()
    return _skbuild.get_requires_for_build_editable(config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517's hook."""
    return _skbuild.build_wheel(wheel_directory, _with_torch(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 660's hook."""
    return _skbuild.build_editable(wheel_directory, _with_torch(config_settings), metadata_directory)


def _torch_or_exit():
    """What torch_paths finds; where there is none its sentence, without a traceback around it."""
    try:
        return find_torch()
    except NoTorchError as error:
        sys.exit(str(error))


def _with_torch(config_settings):
    """The settings with what CMake has to know of torch."""
    settings = dict(config_settings or {})
    found = _torch_or_exit()
    wanted = settings.get("cmake.define.TRUENORM_CUDA") or os.environ.get("TRUENORM_CUDA") or "AUTO"
    if wanted.upper() == "ON" and not found["cuda"]:
        sys.exit(f"TRUENORM_CUDA=ON needs a CUDA build of torch, and torch {found['version']} is none.")
    defines = {
        "TRUENORM_TORCH_INCLUDES": ";".join(found["includes"]),
        "TRUENORM_TORCH_LIB_DIR": found["lib_dir"],
        "TRUENORM_TORCH_VERSION": found["version"],
        "TRUENORM_TORCH_CXX11_ABI": str(found["cxx11_abi"]),
        "TRUENORM_TORCH_CUDA": found["cuda"],
        "TRUENORM_CUDA": _cuda_choice(wanted, found),
    }
    settings.update({f"cmake.define.{name}": value for name, value in defines.items()})
    return settings


def _cuda_choice(wanted, found):
    """AUTO made definite where there is no GPU: an image is often built on a machine that has none."""
    if wanted.upper() != "AUTO":
        return wanted
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not (nvcc and found["cuda"]):
        return "OFF"
    return "AUTO" if glob.glob("/dev/nvidia[0-9]*") else "ON"
