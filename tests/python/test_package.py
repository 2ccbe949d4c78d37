"""What `pip install .` lays down: the extension, with the library in it and hidden, the Python files and the licence."""

import importlib.metadata
import pathlib
import shutil
import subprocess

import pytest

import truenorm


def test_the_wheel_holds_what_it_must():
    names = [str(f) for f in importlib.metadata.files("truenorm")]
    assert any(n.startswith("truenorm/_C.") and n.endswith(".so") for n in names), names
    assert any(n.endswith("LICENSE") for n in names)
    assert {"truenorm/__init__.py", "truenorm/py.typed", "truenorm/_built_for.py"} <= set(names)
    assert not [n for n in names if "include/" in n or "lib/" in n]  # nothing of the C package's own install


def test_the_library_is_inside_and_hidden():
    if not shutil.which("nm"):
        pytest.skip("binutils are not here")
    extension = truenorm._C.__file__
    symbols = subprocess.run(["nm", "-D", "--defined-only", extension], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines() if "tn_" in line] == []
    assert "PyInit__C" in symbols


def test_versions_agree():
    header = pathlib.Path(__file__).resolve().parents[2] / "include/truenorm/truenorm.h"
    parts = [
        line.split()[-1]
        for part in ("MAJOR", "MINOR", "PATCH")
        for line in header.read_text().splitlines()
        if line.startswith(f"#define TN_VERSION_{part} ")
    ]
    assert truenorm.__version__ == ".".join(parts) == importlib.metadata.version("truenorm")
