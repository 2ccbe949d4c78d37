"""The Python snippets of README.md and docs/python.md run as they stand, each in an interpreter of its own."""

import pathlib
import re
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
SNIPPETS = [
    pytest.param(code, id=f"{name}:{text[: match.start()].count(chr(10)) + 1}")
    for name in ("README.md", "docs/python.md")
    for text in [(TOP / name).read_text()]
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for code in [match.group(1)]
]


def test_there_are_snippets():
    assert len(SNIPPETS) >= 4


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_snippet_runs(code, tmp_path):
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
