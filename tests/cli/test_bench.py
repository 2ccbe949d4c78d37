"""`truenorm bench` of other types of weights, rows that lie apart, and outputs over inputs, on the CPU."""

import json

from command import CommandTest

LITTLE = ["--shape", "5x200", "--threads", "1", "--rounds", "1", "--sample-ms", "0.05", "--rotate-mb", "1"]


class Bench(CommandTest):
    def bench(self, *options):
        """The one group."""
        (group,) = json.loads(self.succeed("bench", *LITTLE, *options, "--json", "-"))["groups"]
        return group

    def said(self, *options):
        group = self.bench(*options)
        return [group[key] for key in ["dtype", "weight_dtype", "row_gap", "in_place"]]

    def test_without_options(self):
        self.assertEqual(self.said("--dtype", "f16"), ["f16", "f16", 0, False])
        table = self.succeed("bench", *LITTLE, "--dtype", "f16")
        self.assertTrue(table.splitlines()[1].startswith("operation"), table)

    def test_each(self):
        self.assertEqual(self.said("--dtype", "bf16", "--weight-dtype", "f32"), ["bf16", "f32", 0, False])
        self.assertEqual(self.said("--dtype", "f32", "--row-gap", "8"), ["f32", "f32", 8, False])
        self.assertEqual(self.said("--dtype", "f16", "--in-place"), ["f16", "f16", 0, True])

    def test_all_at_once_for_every_call(self):
        options = ["--dtype", "bf16", "--weight-dtype", "f32", "--row-gap", "1", "--in-place"]
        group = self.bench(*options)
        self.assertEqual(len(group["results"]), 12)
        for result in group["results"]:
            copies = result["floor"]["reads"] + result["floor"]["writes"]
            self.assertEqual(result["bytes"], 5 * 200 * 2 * copies)  # gaps are not counted
            self.assertGreater(result["ratio"], 0)
        line = self.succeed("bench", *LITTLE, *options).splitlines()[1]
        for part in ["weights in f32", "1 element between rows", "in place: y over x", "dx over dy"]:
            self.assertIn(part, line)

    def test_in_place_needs_half_of_the_memory(self):
        self.assertEqual(self.bench("--dtype", "f32", "--in-place")["buffer_sets"],
                         2 * self.bench("--dtype", "f32")["buffer_sets"])  # fmt: skip

    def test_refused(self):
        for arguments, saying in [
            (["--weight-dtype", "f64"], ["--weight-dtype", "'f64'", "f32, f16, bf16"]),
            (["--weight-dtype", "f32,f16"], ["--weight-dtype", "'f32,f16'"]),
            (["--row-gap", "-1"], ["--row-gap", "takes 0 to", "got -1"]),
            (["--row-gap", "2000000"], ["--row-gap", "takes 0 to", "got 2000000"]),
            (["--row-gap", "wide"], ["--row-gap", "'wide'", "numbers"]),
            (["--in-place", "--shape", "4x127"], ["--in-place", "128 columns or more", "4x127"]),
            (["--in-place", "--m", "4", "--n", "128,64"], ["--in-place", "128 columns or more", "4x64"]),
        ]:
            self.refuse("bench", *arguments, "--json", "b.json", saying=saying)

    def test_help(self):
        text = self.succeed("bench", "--help")
        for option in ["--weight-dtype TYPE", "--row-gap ELEMENTS", "--in-place"]:
            self.assertIn(option, text)
