"""What tools/convergence.py makes of trainings: what it draws, what it says, and what it complains of."""

import sys
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import convergence_report  # noqa: E402
from convergence import runs  # noqa: E402
from convergence_training import STEPS, Result, rate  # noqa: E402

GEMMA = {
    "float32": {
        "norms": 109,
        "positions": 96,
        "same_next": 96,
        "generated": 64,
        "same_generated": 64,
        "norm_error": [1e-8, 1.1e-8],
        "logit_error": [1e-7, 1e-7],
    }
}


def results(**changes):
    """Trainings that agree but for the order's noise; `changes` replaces fields of those with truenorm, by name."""
    found = {}
    for run in runs():
        result = Result([5.0 - 3.0 * i / STEPS for i in range(STEPS)], 2.0 + 0.01 * run.order, "bits", 7 * run.patched)
        if run.patched:
            result = result._replace(**{k: v(run) for k, v in changes.items() if v(run) is not None})
        found[run] = result
    return found


class Convergence(unittest.TestCase):
    def test_runs(self):
        self.assertEqual(len(set(runs())), 28)
        self.assertEqual(sum(run.repeat for run in runs()), 4)

    def test_rate_warms_up_and_falls(self):
        rates = [rate(step) for step in range(STEPS)]
        self.assertEqual(max(rates), 1.0)
        self.assertLess(rates[0], 0.1)
        self.assertLess(rates[-1], 0.11)

    def test_what_agrees_is_no_problem(self):
        self.assertEqual(convergence_report.problems(results(), GEMMA), [])

    def test_other_bits_in_a_repeated_training(self):
        problems = convergence_report.problems(results(bits=lambda run: "other" if run.repeat else None), None)
        self.assertEqual(len(problems), 4)
        self.assertIn("other bits", problems[0])

    def test_final_losses_that_differ_by_more_than_noise(self):
        worse = results(final=lambda run: 2.05 + 0.01 * run.order if run.model == "Llama" else None)
        problems = convergence_report.problems(worse, None)
        self.assertEqual(len(problems), 2)
        self.assertIn("Llama, FP32: final losses differ by +0.0500", problems[0])

    def test_trainings_that_are_missing(self):
        some = {run: result for run, result in results().items() if run.dtype == "float32" or not run.repeat}
        problems = convergence_report.problems(some, None)
        self.assertEqual(problems, [f"{model}, BF16: not all trainings are there" for model in ("Llama", "Gemma 3")])

    def test_a_patch_that_replaced_nothing(self):
        self.assertEqual(len(convergence_report.problems(results(norms=lambda run: 0), None)), 4)

    def test_gemma_that_says_something_else(self):
        other = {"float32": GEMMA["float32"] | {"same_next": 95, "norm_error": [1.2e-8, 1.1e-8]}}
        problems = convergence_report.problems(results(), other)
        self.assertEqual(len(problems), 2)

    def test_the_document_and_the_picture(self):
        record = {"text": "a text", "gemma": GEMMA, "versions": {"torch": "2.11.0"}}
        document = convergence_report.document(results(), record)
        self.assertIn("| Llama, FP32 | 2.0100, 2.0200, 2.0300 | 2.0100, 2.0200, 2.0300 | +0.0000 |", document)
        self.assertIn("96 of 96", document)
        self.assertIn("torch 2.11.0", document)
        svg = xml.etree.ElementTree.fromstring(convergence_report.picture(results()))
        lines = [element for element in svg.iter() if element.tag.endswith("polyline")]
        self.assertEqual(len(lines), 4 * 6)


if __name__ == "__main__":
    unittest.main()
