"""Where the torch is that an extension is built for, and what it is.

Build isolation hides the environment's packages, torch among them, and a torch of its own would be another one. So the
environment's interpreter is asked, in a process that does not see the isolation's paths.
"""

import json
import os
import subprocess
import sys

_ASK = """
import json, os, sys
try:
    import torch
except ImportError as error:
    json.dump({"error": str(error)}, sys.stdout)
else:
    root = os.path.dirname(torch.__file__)
    json.dump({
        "version": torch.__version__,
        "cuda": torch.version.cuda or "",
        "cxx11_abi": int(torch._C._GLIBCXX_USE_CXX11_ABI),
        "includes": [os.path.join(root, "include"), os.path.join(root, "include/torch/csrc/api/include")],
        "lib_dir": os.path.join(root, "lib"),
    }, sys.stdout)
"""
# What pip and other front ends set to isolate a build.
_ISOLATION = ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONHOME")


class NoTorchError(RuntimeError):
    """No torch could be found to build for."""


def find_torch(python=None):
    """Asks an interpreter for its torch.

    Args:
        python: the interpreter; by default TRUENORM_TORCH_PYTHON from the environment, else the running one.

    Returns:
        dict with `version`, `cuda` ("" where torch has none), `cxx11_abi` (0 or 1), `includes` and `lib_dir`.

    Raises:
        NoTorchError: there is none; the message says what to do.
    """
    python = python or os.environ.get("TRUENORM_TORCH_PYTHON") or sys.executable
    environment = {name: value for name, value in os.environ.items() if name not in _ISOLATION}
    answer = subprocess.run([python, "-c", _ASK], env=environment, capture_output=True, text=True, cwd=os.sep)
    try:
        found = json.loads(answer.stdout)
    except ValueError:
        lines = answer.stderr.strip().splitlines() or ["nothing"]
        found = {"error": lines[-1]}
    if "error" in found:
        raise NoTorchError(
            f"truenorm is built for the PyTorch that is installed, and {python} has none that can be imported "
            f"({found['error']}): install torch first, or name an interpreter that has it in TRUENORM_TORCH_PYTHON."
        )
    return found
