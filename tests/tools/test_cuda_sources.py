"""What no kernel may have, as its compiler would take it."""

import re
import unittest
from pathlib import Path

CUDA = Path(__file__).resolve().parents[2] / "src" / "cuda"
# Loads of memory that is constant while the kernel runs: they may be moved to before the wait for the launch that writes
# it (src/cuda/device/dependent.cuh).
CONSTANT = re.compile(r"__ldg\s*\(|\.global\.nc\b")


class CudaSources(unittest.TestCase):
    def test_no_load_takes_memory_to_be_constant(self):
        files = [file for file in CUDA.rglob("*") if file.suffix in {".cu", ".cuh", ".hpp", ".cpp"}]
        self.assertGreater(len(files), 20)
        for file in files:
            self.assertIsNone(CONSTANT.search(file.read_text()), file.name)
        self.assertIsNotNone(CONSTANT.search("low = __ldg(from);"))


if __name__ == "__main__":
    unittest.main()
