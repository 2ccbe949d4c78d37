"""A folder of its own for a test of the GPU's tools: they find the repository by where they lie."""

import shutil
import tempfile
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def copied_tools(case, sources):
    """A folder with tools/gpu_* and the named source files, for as long as the TestCase runs."""
    folder = tempfile.TemporaryDirectory()
    case.addCleanup(folder.cleanup)
    root = Path(folder.name)
    (root / "tools").mkdir()
    for file in TOOLS.glob("gpu_*"):
        if file.is_file():
            shutil.copy(file, root / "tools" / file.name)
    for name in sources:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("of " + name)
    return root
