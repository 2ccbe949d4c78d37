"""What tools/gpu_widths.py times, and what it makes of the answers."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import gpu_widths  # noqa: E402


def group(m, n, us, **more):
    results = [
        {"op": "rms_norm", "direction": d, "median_us": us + i, "floor": {"median_us": 8.0}, "ratio": (us + i) / 8}
        for i, d in enumerate(["forward", "backward"])
    ]
    call = {"dtype": "bf16", "weight_dtype": "f32", "row_gap": 0, "in_place": False}
    return {"m": m, "n": n, "noise": 1.01, "results": results} | call | more


class Widths(unittest.TestCase):
    def test_models_and_the_neighbours_of_powers_of_two(self):
        for power in [4096, 8192, 16384]:
            for away in [-8, -1, 0, 1, 8]:
                self.assertIn(power + away, gpu_widths.HIDDEN)
        self.assertEqual((min(gpu_widths.HIDDEN), max(gpu_widths.HIDDEN)), (512, 18432))
        self.assertEqual(gpu_widths.HIDDEN, sorted(set(gpu_widths.HIDDEN)))

    def test_shapes_fit(self):
        for gigabytes in [1, 8, 80, 140]:
            for m, n in gpu_widths.shapes(gigabytes << 30):
                self.assertTrue(1 <= m <= 8192 and m * n <= 1 << 26)
                self.assertLess(4 * 5 * m * n, gigabytes << 29)
        self.assertIn((8192, 4097), gpu_widths.shapes(80 << 30))
        self.assertIn((4096, 16384), gpu_widths.shapes(80 << 30))

    def test_every_variant_is_another_call(self):
        calls = {tuple(gpu_widths.arguments(variant, [(2, 3), (4, 5)])) for variant in gpu_widths.VARIANTS}
        self.assertEqual(len(calls), 7)
        for call in calls:
            self.assertIn("2x3,4x5", call)

    def test_lines_say_what_was_timed(self):
        forward, backward = gpu_widths.lines_of("a name", {"groups": [group(2, 3, 10.0), group(4, 5, 12.0)]})
        self.assertEqual(gpu_widths.problems([forward, backward]), [])
        self.assertEqual((forward["direction"], backward["direction"]), ("forward", "backward"))
        self.assertEqual((forward["variant"], forward["dtype"], forward["weight_dtype"]), ("a name", "bf16", "f32"))
        self.assertEqual(backward["points"][1], {"m": 4, "n": 5, "us": 13.0, "floor_us": 8.0, "ratio": 1.625, "noise": 1.01})
        self.assertEqual(gpu_widths.slowest_text([forward, backward]), "backward 1.62 at N = 5, a name")

    def test_answers_to_another_question(self):
        for groups in [[], [group(2, 3, 10.0), group(2, 3, 10.0, in_place=True)], [group(2, 3, 10.0) | {"results": []}]]:
            with self.assertRaises(ValueError):
                gpu_widths.lines_of("a name", {"groups": groups})

    def test_a_table_has_gaps_where_nothing_was_timed(self):
        lines = gpu_widths.lines_of("one", {"groups": [group(4, 5, 12.0), group(2, 3, 10.0)]})
        lines += gpu_widths.lines_of("two", {"groups": [group(4, 5, 16.0)]})
        heading, rows = gpu_widths.rows_of(lines, "forward")
        self.assertEqual(heading, ["N", "M", "one", "two"])
        self.assertEqual(rows, [[3, 2, "**1.25** (10.00 / 8.00)", ""],
                                [5, 4, "**1.50** (12.00 / 8.00)", "**2.00** (16.00 / 8.00)"]])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
