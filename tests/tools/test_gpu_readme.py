"""The README's tables of GPUs are what tools/gpu_readme.py makes of the records in evidence/."""

import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gpu_readme  # noqa: E402
import gpu_record  # noqa: E402


def marked(name, path="evidence/gpu.json", inside="old\n"):
    return f"<!-- {path}: {name} -->\n{inside}<!-- end -->\n"


class Readme(unittest.TestCase):
    def test_its_tables_are_those_of_the_records(self):
        text = (ROOT / "README.md").read_text()
        blocks = gpu_readme.BLOCK.findall(text)
        self.assertEqual({name for _, name, _ in blocks}, {*gpu_readme.TABLES, *gpu_readme.TORCH_TABLES})
        self.assertTrue(gpu_readme.rewritten(text, ROOT) == text, "README.md is out of date: run tools/gpu_readme.py")
        self.assertEqual(gpu_readme.main(["--check"]), 0)

    def test_its_speed_has_all_shapes(self):
        tables = [inside for _, name, inside in gpu_readme.BLOCK.findall((ROOT / "README.md").read_text()) if name == "speed"]
        for table in tables:
            rows = re.findall(r"^\| .+? \| \d+ x \d+ \| (.+) \|$", table, re.MULTILINE)
            self.assertEqual(len(rows), sum(map(len, gpu_readme.SHAPES.values())))
            for cells in rows:
                numbers = [float(cell.strip("*")) for cell in cells.split(" | ")]
                for us, floor, ratio in [numbers[:3], numbers[3:]]:
                    self.assertAlmostEqual(us / floor, ratio, delta=0.02)


class Generator(unittest.TestCase):
    """On a copy of a record, changed."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "evidence").mkdir()
        self.record = json.loads((ROOT / "evidence/nvidia-h200.json").read_text())

    def rewritten(self, text):
        (self.root / "evidence/gpu.json").write_text(gpu_record.dump(self.record))
        return gpu_readme.rewritten(text, self.root)

    def test_tables_of_the_pytorch_package(self):
        record = json.loads((ROOT / "evidence/torch/nvidia-h200.json").read_text())
        path = self.root / "evidence/torch/gpu.json"
        path.parent.mkdir()
        record["training"][0]["step_ratio"] = 0.123
        path.write_text(json.dumps(record))
        text = marked("training", "evidence/torch/gpu.json") + marked("calls", "evidence/torch/gpu.json")
        new = gpu_readme.rewritten(text, self.root)
        self.assertIn("| **0.123** |", new)
        self.assertIn("| forward + gradient | us | ratio |", new)
        self.expect_refused(marked("speed", "evidence/torch/gpu.json"), "there is no table speed")
        del record["training"][0]["step_ratio"]
        path.write_text(json.dumps(record))
        self.expect_refused(text, "is no record: training[0].step_ratio")

    def expect_refused(self, text, saying):
        with self.assertRaises(gpu_readme.CannotWrite) as caught:
            self.rewritten(text)
        self.assertIn(saying, str(caught.exception))

    def result(self, op, direction, m, n):
        return next(
            result
            for group in self.record["speed"]
            if (group["m"], group["n"], group["dtype"]) == (m, n, "bf16")
            for result in group["results"]
            if (result["op"], result["direction"]) == (op, direction)
        )

    def line(self, dtype):
        return next(
            line
            for line in self.record["accuracy"]
            if [line[key] for key in ["operation", "rounding", "direction", "kind", "dtype"]]
            == ["layer_norm", "once", "backward", "uniform", dtype]
        )

    def test_figures_follow_the_record_and_the_rest_stays(self):
        self.result("rms_norm", "backward", 128, 18432).update(us=123.456, floor_us=100.0, ratio=1.2346)
        self.line("bf16").update(correct_share=0.99999999)
        self.line("f32").update(worst_weight_gradient_over_bar=0.987)
        text = self.rewritten("before\n" + marked("speed") + "between\n" + marked("accuracy") + "after\n")
        self.assertIn("| 123.46 | 100.00 | **1.23** |", text)
        self.assertIn("| LayerNorm | backward | 99.9999 % |", text)  # all but perfect is not 100 %
        self.assertIn("| 0.99 |", text)
        self.assertNotIn("old", text)
        self.assertEqual([text.count(word) for word in ["before\n", "between\n", "after\n"]], [1, 1, 1])
        self.assertEqual(self.rewritten(text), text)

    def test_a_broken_bar_is_not_passed_over(self):
        self.record["accuracy"][0]["passed"] = False
        self.assertIn("NOT every bar is met", self.rewritten(marked("accuracy")))

    def test_what_cannot_be_written(self):
        self.expect_refused(marked("weather"), "no table weather")
        self.expect_refused(marked("speed", "evidence/other.json"), "evidence/other.json cannot be read")
        self.expect_refused("<!-- evidence/gpu.json: speed -->\n", "counterpart")
        self.expect_refused(marked("speed") + "<!-- end -->\n", "counterpart")
        self.record["speed"] = []
        self.expect_refused(marked("speed"), "no speed of rms_norm, forward, 8192 x 128")
        self.record["accuracy"] = [line for line in self.record["accuracy"] if line["dtype"] != "f16"]
        self.expect_refused(marked("accuracy"), "no accuracy of rms_norm, forward, in f16")
        self.record["passed"] = None
        self.expect_refused(marked("speed"), "is no record: passed")


if __name__ == "__main__":
    unittest.main()
