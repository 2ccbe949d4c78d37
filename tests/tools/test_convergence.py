"""What tools/convergence.py makes of trainings: what it draws, what it says, and what it complains of."""

import sys
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import convergence_report  # noqa: E402
from convergence import runs  # noqa: E402
from convergence_training import STEPS, Result, rate  # noqa: E402

GEMMA_FP32 = {
    "norms": 109,
    "positions": 512,
    "generated": 64,
    "same_generated": 64,
    "norm_error": [1e-8, 1.1e-8],
    "logit_error": {"theirs": 1e-7, "ours": 1e-7, "FP64": 0.0},
    "as_reference": {"theirs": 512, "ours": 512, "FP64": 512},
    "as_theirs": {"theirs": 512, "ours": 512, "FP64": 512},
    "other": [],
}
GEMMA_BF16 = GEMMA_FP32 | {
    "logit_error": {"theirs": 1.2e-2, "ours": 1.1e-2, "FP64": 1.2e-2, "-1": 1.0e-2, "+1": 1.3e-2},
    "as_reference": {"theirs": 501, "ours": 502, "FP64": 503, "-1": 504, "+1": 500},
    "as_theirs": {"theirs": 512, "ours": 510, "FP64": 509, "-1": 505, "+1": 508},
    "other": [
        {"prompt": 4, "after": 21, "gaps": {"reference": 2.3, "theirs": 1.0, "ours": 0.0, "FP64": 1.0}},
        {"prompt": 9, "after": 3, "gaps": {"reference": -0.4, "theirs": 1.0, "ours": -1.0, "FP64": -2.0}},
    ],
}
GEMMA = {"float32": GEMMA_FP32, "bfloat16": GEMMA_BF16}


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
        far = {"prompt": 1, "after": 2, "gaps": {"reference": -9.0, "theirs": 1.0, "ours": -1.0, "FP64": 1.0}}
        other = {
            "float32": GEMMA_FP32 | {"other": GEMMA_BF16["other"], "norm_error": [1.2e-8, 1.1e-8]},
            "bfloat16": GEMMA_BF16 | {"other": [far], "logit_error": GEMMA_BF16["logit_error"] | {"ours": 1.5e-2}},
        }
        problems = convergence_report.problems(results(), other)
        said = ("FP32: the norms' error", "FP32: not all next tokens", "BF16: 1 next tokens", "BF16: the logits' error")
        self.assertEqual(len(problems), len(said))
        for problem, start in zip(problems, said):
            self.assertIn(start, problem)

    def test_what_the_document_says_of_gemma(self):
        chance, _, table = convergence_report.gemma_section(GEMMA)[-3:]
        for words in (
            "2 of 512 next tokens differ",
            "at most 2.3 spacings",
            "in 1 they are equal",
            "transformers' norms is the likelier in 1, and that of truenorm's in 1.",
            "move 4 to 7 next tokens",
            "1.000e-02 to 1.300e-02",
        ):
            self.assertIn(words, chance)
        self.assertIn("| prompt 9, 3 tokens | -0.4 | +1.0 | -1.0 | -2.0 |", table)
        nothing_to_tell = {"float32": GEMMA_FP32, "bfloat16": GEMMA_BF16 | {"other": []}}
        self.assertEqual(len(convergence_report.gemma_section(nothing_to_tell)), 3)

    def test_the_document_and_the_picture(self):
        record = {"text": "a text", "gemma": GEMMA, "versions": {"torch": "2.11.0"}}
        document = convergence_report.document(results(), record)
        self.assertIn("| Llama, FP32 | 2.0100, 2.0200, 2.0300 | 2.0100, 2.0200, 2.0300 | +0.0000 |", document)
        self.assertIn("| BF16, in FP64, times 1 - 1·2^-24 |  | 1.000e-02 | 504 | 505 |", document)
        self.assertIn("torch 2.11.0", document)
        svg = xml.etree.ElementTree.fromstring(convergence_report.picture(results()))
        lines = [element for element in svg.iter() if element.tag.endswith("polyline")]
        self.assertEqual(len(lines), 4 * 6)


if __name__ == "__main__":
    unittest.main()
