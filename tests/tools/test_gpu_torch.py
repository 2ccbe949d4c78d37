"""tools/gpu_torch without a GPU: what a record must be to be relied on, and its readable form."""

import json
import subprocess
import sys
import unittest

from tools_copy import TOOLS, copied_tools

sys.path.insert(0, str(TOOLS))
import gpu_torch_record as records  # noqa: E402


def line(name, us, ratio):
    return {"name": name, "us": us, "ratio": ratio}


def record(root):
    side = {"step_ms": 100.0, "peak_mib": 2000.0, "first_loss": 12.0, "last_loss": 9.5}
    return {
        "format": records.FORMAT, "date": "2026-01-02 03:04 UTC", "passed": True, "driver": "1.2",
        "sources_sha256": records.sources_hash(root), "name": "Vendor GPU 7", "devices": 1, "torch": "2.11.0",
        "transformers": "5.17.0", "truenorm": "0.1.0", "cuda_version": "13.0",
        "steps": [{"name": "tests", "outcome": "passed", "seconds": 1.5, "detail": "5 tests, 1 skipped"}],
        "calls": {"m": 1, "n": 4096, "dtype": "bfloat16", "device": "cuda", "missing": {"Liger rms_norm": "ImportError"},
                  "full": [line("floor: x * 1", 70.0, 1.0), line("truenorm.rms_norm", 77.0, 1.1)],
                  "forward": [line("floor: empty_like", 2.0, 1.0), line("truenorm.rms_norm", 8.0, 4.0)]},
        "training": [{"model": "Llama 3.2 1B", "batch": 4, "length": 1024, "steps": 100, "step_ratio": 0.9,
                      "without": side, "with": side | {"step_ms": 90.0}}],
    }  # fmt: skip


class GpuTorch(unittest.TestCase):
    def setUp(self):
        sources = ["src/api/a.cpp", "src/cuda/k.cuh", "src/spec/s.hpp", "bindings/torch/b.cpp", "python/truenorm/p.py"]
        self.root = copied_tools(self, sources)

    def write(self, value):
        path = self.root / "evidence/torch/vendor-gpu-7.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))

    def call(self, *arguments):
        command = [sys.executable, "-B", self.root / "tools/gpu_torch", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def stale(self, sentence):
        done = self.call("--stale")
        self.assertEqual(done.returncode, 1)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_stale(self):
        self.stale("holds no record")
        self.write(record(self.root))
        done = self.call("--stale")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.write(record(self.root) | {"passed": False})
        self.stale("not everything passed")
        whole = record(self.root)
        del whole["training"][0]["with"]["last_loss"]
        self.write(whole)
        self.stale("training[0].with")
        for damaged in ["", "[", "[]", "{}", "3", '{"passed": true}', "[" * 100000]:
            with self.subTest(damaged=damaged[:20]):
                self.write(damaged)
                self.stale("is no record")

    def test_every_covered_folder_counts(self):
        for name in ["src/api/a.cpp", "src/cuda/k.cuh", "src/spec/s.hpp", "bindings/torch/b.cpp", "python/truenorm/p.py"]:
            with self.subTest(name=name):
                self.write(record(self.root))
                before = (self.root / name).read_text()
                (self.root / name).write_text("another")
                self.stale("other sources")
                (self.root / name).write_text(before)
                self.assertEqual(self.call("--stale").returncode, 0)

    def test_compiled_python_is_no_source(self):
        self.write(record(self.root))
        (self.root / "python/truenorm/__pycache__").mkdir()
        (self.root / "python/truenorm/__pycache__/p.cpython-311.pyc").write_bytes(b"x")
        self.assertEqual(self.call("--stale").returncode, 0)

    def test_markdown(self):
        text = records.markdown(record(self.root))
        for part in ["# Vendor GPU 7", "everything passed", "| tests | passed | 1.5 | 5 tests, 1 skipped |",
                     "| truenorm.rms_norm | 77.00 | **1.100** |", "Not there: Liger rms_norm (ImportError)",
                     "| Llama 3.2 1B | 4 x 1024 | 100.00 | 90.00 | **0.900** |"]:  # fmt: skip
            self.assertIn(part, text)
        self.assertNotIn("NOT", text)
        self.assertIn("NOT everything passed", records.markdown(record(self.root) | {"passed": False}))

    def test_without_what_it_needs(self):
        done = self.call("--output", str(self.root / "out"))
        if "written" not in done.stdout:  # this Python has no torch, or no GPU: nothing is recorded
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("gpu_torch: torch", done.stderr)
            self.assertFalse((self.root / "out").exists())

    def test_wrong_steps(self):
        self.assertEqual(self.call("--only", "tests,nothing").returncode, 2)


if __name__ == "__main__":
    unittest.main()
