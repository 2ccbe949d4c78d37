"""What `truenorm run` computes, against values worked out by hand or in Python's FP64."""

import json
import math

from command import CommandTest
from tensors import npy, parse_npy, parse_safetensors, safetensors


def fnv1a64(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


class RunValues(CommandTest):
    def run_all(self, *arguments):
        self.succeed("run", *arguments, "-o", "out.safetensors")
        return parse_safetensors(self.path("out.safetensors"))

    def close(self, got, want, tolerance=1e-6):
        self.assertEqual(len(got), len(want))
        for one, other in zip(got, want):
            self.assertTrue(math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance), (got, want))

    def test_rms_norm_forward(self):
        self.put("x.npy", npy((2, 4), [2, 2, 2, 2, 3, -1, 1, -5]))
        self.put("w.npy", npy((4,), [1, 2, -3, 0.5]))
        out = self.run_all("rms_norm", "--x", "x.npy", "--weight", "w.npy", "--eps", "0")
        self.assertEqual(set(out), {"y", "rstd"})
        # Mean squares 4 and 9: rstd 1/2 and 1/3.
        self.assertEqual(out["rstd"][:2], ("F32", (2,)))
        self.close(out["rstd"][2], [0.5, 1 / 3])
        self.assertEqual(out["y"][:2], ("F32", (2, 4)))
        self.assertEqual(out["y"][2][:4], [1, 2, -3, 0.5])
        self.close(out["y"][2][4:], [1, -2 / 3, -1, -5 / 6])

    def test_eps_defaults(self):
        self.put("x.npy", npy((1, 2), [0, 0]))
        self.close(self.run_all("rms_norm", "--x", "x.npy")["rstd"][2], [1e3], 1e-5)
        self.close(self.run_all("layer_norm", "--x", "x.npy")["rstd"][2], [1 / math.sqrt(1e-5)], 1e-5)
        self.assertEqual(self.run_all("rms_norm", "--x", "x.npy", "--eps", "4")["rstd"][2], [0.5])

    def test_layer_norm_forward(self):
        self.put("x.npy", npy((2, 2), [1, 3, -5, 5]))
        self.put("w.npy", npy((2,), [10, 20]))
        self.put("b.npy", npy((2,), [0.5, 0.25]))
        out = self.run_all("layer_norm", "--x", "x.npy", "--weight", "w.npy", "--bias", "b.npy", "--eps", "0")
        self.assertEqual(set(out), {"y", "mean", "rstd"})
        self.assertEqual(out["mean"][2], [2, 0])
        self.close(out["rstd"][2], [1, 0.2])
        self.close(out["y"][2], [-9.5, 20.25, -9.5, 20.25])

    def test_residual(self):
        self.put("t.safetensors", safetensors({"x": ("BF16", (1, 2), [1, 256]), "r": ("F32", (1, 2), [3, 1])}))
        inputs = ["rms_norm", "--x", "t.safetensors:x", "--residual", "t.safetensors:r", "--eps", "0"]
        out = self.run_all(*inputs)
        self.assertEqual(out["s"], ("F32", (1, 2), [4, 257]))
        self.assertEqual(out["y"][0], "BF16")
        self.assertEqual(self.run_all(*inputs, "--residual-dtype", "bf16")["s"], ("BF16", (1, 2), [4, 256]))

    def test_offset_acts_in_fp32(self):
        self.put("t.safetensors", safetensors({"x": ("BF16", (1, 1), [1]), "w": ("BF16", (1,), [0.00390625])}))
        tensors = ["--x", "t.safetensors:x", "--weight", "t.safetensors:w"]
        out = self.run_all("rms_norm", *tensors, "--eps", "0", "--offset", "1", "--out-dtype", "f32")
        self.assertEqual(out["y"], ("F32", (1, 1), [1.00390625]))

    def test_rounding_modes(self):
        # x * rstd = 5/3, 1/3 in BF16: 1.6640625, 0.333984375; times 3: 4.992..., or 5 when rounded once.
        self.put("x.safetensors", safetensors({"x": ("BF16", (1, 4), [3, -1, 1, -5])}))
        self.put("w.npy", npy((4,), [3, 3, 3, 3]))
        inputs = ["rms_norm", "--x", "x.safetensors", "--weight", "w.npy", "--eps", "0", "--out-dtype", "f32"]
        once = self.run_all(*inputs)["y"][2]
        self.close(once, [3, -1, 1, -5])
        self.assertEqual(self.run_all(*inputs, "--rounding", "gemma")["y"][2], once)
        self.assertEqual(self.run_all(*inputs, "--rounding", "llama")["y"][2], [3, -1.001953125, 1.001953125, -4.9921875])

    def test_rms_norm_backward(self):
        self.put("x.npy", npy((2, 4), [1, 1, 1, 1, 2, 2, 2, 2]))
        self.put("dy.npy", npy((2, 4), [4, 0, 0, 0, 0, 8, 0, 0]))
        self.put("w.npy", npy((4,), [1, 2, 1, 1]))
        out = self.run_all("rms_norm", "--backward", "--x", "x.npy", "--dy", "dy.npy", "--weight", "w.npy", "--eps", "0",
                           "--bias", "w.npy")
        # xhat is 1 everywhere; rstd is 1, then 1/2; c is 1, then 4.
        self.assertEqual(out["dx"], ("F32", (2, 4), [3, -1, -1, -1, -2, 6, -2, -2]))
        self.assertEqual(out["dweight"], ("F32", (4,), [4, 8, 0, 0]))
        self.assertEqual(out["dbias"], ("F32", (4,), [4, 8, 0, 0]))
        self.assertEqual(set(out), {"dx", "dweight", "dbias"})

    def test_layer_norm_backward(self):
        self.put("x.npy", npy((1, 4), [1, 3, 1, 3]))
        self.put("dy.npy", npy((1, 4), [4, 0, 0, 0]))
        out = self.run_all("layer_norm", "--backward", "--x", "x.npy", "--dy", "dy.npy", "--eps", "0")
        # g = dy, its mean 1; xhat = -1, 1, -1, 1; mean of g * xhat -1.
        self.assertEqual(out["dx"], ("F32", (1, 4), [2, 0, -2, 0]))

    def test_backward_from_saved_statistics(self):
        self.put("x.npy", npy((3, 5), [math.sin(i * i) for i in range(15)]))
        self.put("r.npy", npy((3, 5), [math.cos(i) for i in range(15)]))
        for op in ["rms_norm", "layer_norm"]:
            with self.subTest(op=op):
                self.run_all(op, "--x", "x.npy", "--residual", "r.npy")
                with open(self.path("out.safetensors"), "rb") as file:
                    self.put("f.safetensors", file.read())
                gradients = ["--backward", "--dy", "random:1", "--ds", "random:2"]
                saved = ["--s", "f.safetensors:s", "--rstd", "f.safetensors:rstd"]
                if op == "layer_norm":
                    saved += ["--mean", "f.safetensors:mean"]
                recomputed = self.run_all(op, *gradients, "--x", "x.npy", "--residual", "r.npy")
                self.assertEqual(self.run_all(op, *gradients, *saved), recomputed)
                self.assertEqual(recomputed["dx"], recomputed["dresidual"])

    def test_only_ds(self):
        self.put("x.npy", npy((1, 3), [1, 2, 4]))
        self.put("ds.npy", npy((1, 3), [5, 6, 7]))
        self.put("w.npy", npy((3,), [1, 1, 1]))
        out = self.run_all("rms_norm", "--backward", "--x", "x.npy", "--ds", "ds.npy", "--weight", "w.npy")
        self.assertEqual(out["dx"][2], [5, 6, 7])
        self.assertEqual(out["dresidual"][2], [5, 6, 7])
        self.assertEqual(out["dweight"][2], [0, 0, 0])

    def test_dtype_rounds_to_nearest_even(self):
        # BF16 has 8 bits: 257 and 259 lie halfway.
        self.put("x.npy", npy((1, 4), [257, 259, 1 + 2**-8 + 2**-20, -1 - 2**-8]))
        self.put("r.npy", npy((1, 4), [0, 0, 0, 0]))
        out = self.run_all("rms_norm", "--x", "x.npy", "--residual", "r.npy", "--dtype", "bf16")
        self.assertEqual(out["s"], ("BF16", (1, 4), [256, 260, 1.0078125, -1]))
        self.put("x.npy", npy((1, 4), [2049, 2051, 65519, 2.0**-25 * 3]))
        out = self.run_all("rms_norm", "--x", "x.npy", "--residual", "r.npy", "--dtype", "f16")
        self.assertEqual(out["s"], ("F16", (1, 4), [2048, 2052, 65504, 2.0**-23]))

    def test_types_of_the_outputs(self):
        tensors = {"x": ("F16", (1, 2), [1, 2]), "w": ("F32", (2,), [1, 2]), "s": ("F32", (1, 2), [1, 2])}
        self.put("t.safetensors", safetensors(tensors))
        forward = ["rms_norm", "--x", "t.safetensors:x", "--weight", "t.safetensors:w"]
        self.assertEqual(self.run_all(*forward)["y"][0], "F16")
        self.assertEqual(self.run_all(*forward, "--dtype", "f32")["y"][0], "F32")
        self.assertEqual(self.run_all(*forward, "--out-dtype", "bf16")["y"][0], "BF16")
        backward = ["rms_norm", "--backward", "--s", "t.safetensors:s", "--weight", "t.safetensors:w", "--dy", "ones",
                    "--ds", "ones"]
        out = self.run_all(*backward, "--dtype", "bf16", "--residual-dtype", "f32", "--weight-dtype", "f16")
        types = {name: value[0] for name, value in out.items()}
        self.assertEqual(types, {"dx": "BF16", "dresidual": "F32", "dweight": "F16"})

    def test_rows_and_ranks(self):
        values = [float((7 * i) % 11 - 5) for i in range(24)]
        self.put("x.npy", npy((2, 3, 4), values))
        whole = self.run_all("rms_norm", "--x", "x.npy")
        self.assertEqual(whole["y"][1], (2, 3, 4))
        self.assertEqual(whole["rstd"][1], (2, 3))
        part = self.run_all("rms_norm", "--x", "x.npy", "--rows", "1:5")
        self.assertEqual(part["y"], ("F32", (4, 4), whole["y"][2][4:20]))
        self.assertEqual(part["rstd"], ("F32", (4,), whole["rstd"][2][1:5]))
        none = self.run_all("rms_norm", "--x", "x.npy", "--rows", "6:6")
        self.assertEqual(none["y"], ("F32", (0, 4), []))

        self.put("w.npy", npy((3, 4), [1.0] * 12))
        both = self.run_all("rms_norm", "--x", "x.npy", "--weight", "w.npy")
        self.assertEqual(both["y"][1], (2, 3, 4))
        self.assertEqual(both["rstd"][1], (2,))
        self.put("flat.npy", npy((2, 12), values))
        self.assertEqual(self.run_all("rms_norm", "--x", "flat.npy")["y"][2], both["y"][2])
        gradient = self.run_all("rms_norm", "--backward", "--x", "x.npy", "--weight", "w.npy", "--dy", "random:3")
        self.assertEqual(gradient["dweight"][1], (3, 4))

        self.put("one.npy", npy((4,), values[:4]))
        one = self.run_all("rms_norm", "--x", "one.npy")
        self.assertEqual(one["y"], ("F32", (4,), whole["y"][2][:4]))
        self.assertEqual(one["rstd"][1], ())

    def test_rows_slice_the_other_matrices(self):
        self.put("x.npy", npy((3, 2), [1, 2, 3, 4, 5, 6]))
        self.put("r.npy", npy((3, 2), [10, 20, 30, 40, 50, 60]))
        self.put("short.npy", npy((1, 2), [30, 40]))
        for residual in ["r.npy", "short.npy"]:
            out = self.run_all("rms_norm", "--x", "x.npy", "--residual", residual, "--rows", "1:2")
            self.assertEqual(out["s"], ("F32", (1, 2), [33, 44]))

    def test_no_rows(self):
        self.put("x.npy", npy((0, 4), []))
        self.put("w.npy", npy((4,), [1, 2, 3, 4]))
        out = self.run_all("rms_norm", "--backward", "--x", "x.npy", "--weight", "w.npy", "--dy", "ones")
        self.assertEqual(out["dx"], ("F32", (0, 4), []))
        self.assertEqual(out["dweight"][2], [0, 0, 0, 0])

    def test_made_up_inputs(self):
        self.put("x.npy", npy((64, 64), [float(i % 7 + 1) for i in range(4096)]))
        self.put("zero.npy", npy((64, 64), [0.0] * 4096))
        inputs = ["rms_norm", "--backward", "--x", "x.npy", "--ds"]  # with ds alone, dx is ds
        first = self.run_all(*inputs, "random:7")["dx"][2]
        self.assertEqual(self.run_all(*inputs, "random:7", "--threads", "2")["dx"][2], first)
        self.assertNotEqual(self.run_all(*inputs, "random:8")["dx"][2], first)
        self.assertLess(abs(sum(first) / 4096), 0.1)
        self.assertLess(abs(sum(value * value for value in first) / 4096 - 1), 0.1)
        self.assertLess(abs(sum(value**4 for value in first) / 4096 - 3), 0.5)
        self.assertEqual(self.run_all(*inputs, "ones")["dx"][2], [1.0] * 4096)

    def test_equal_bits_for_each_isa_and_thread_count(self):
        self.put("x.npy", npy((9, 300), [math.sin(i) for i in range(2700)]))
        isas = json.loads(self.succeed("info", "--json"))["instruction_sets"]
        for direction in [[], ["--backward", "--dy", "random:1"]]:
            sums = set()
            for isa in isas:
                for threads in ["1", "2", "7"]:
                    text = self.succeed("run", "layer_norm", *direction, "--x", "x.npy", "--weight", "random:2",
                                        "--bias", "random:3", "--isa", isa, "--threads", threads, "--json", "-")
                    sums.add(json.dumps(json.loads(text)["outputs"]))
            self.assertEqual(len(sums), 1)

    def test_nonfinite_where_allowed(self):
        self.put("x.npy", npy((2, 2), [1, math.nan, 3, 4]))
        out = self.run_all("rms_norm", "--x", "x.npy", "--allow-nonfinite")
        self.assertTrue(all(math.isnan(value) for value in out["y"][2][:2]))
        self.assertTrue(all(math.isfinite(value) for value in out["y"][2][2:]))
        self.put("x.npy", npy((2, 2), [1, math.inf, 3, 4]))
        self.run_all("rms_norm", "--x", "x.npy", "--allow-nonfinite", "--check")

    def test_nonfinite_outside_the_rows_does_not_matter(self):
        self.put("x.npy", npy((2, 2), [1, math.nan, 3, 4]))
        self.run_all("rms_norm", "--x", "x.npy", "--rows", "1:2")

    def test_check(self):
        values = [math.sin(i) + (2000 if i % 3 == 0 else 0) for i in range(4096)]
        self.put("x.npy", npy((32, 128), values))
        for op in ["rms_norm", "layer_norm"]:
            for dtype in ["f32", "f16", "bf16"]:
                rounding = ["--rounding", "llama"] if op == "rms_norm" else []
                tensors = ["--x", "x.npy", "--residual", "random:1", "--weight", "random:2", "--bias", "random:3"]
                with self.subTest(op=op, dtype=dtype):
                    text = self.succeed("run", op, *tensors, "--dtype", dtype, *rounding, "--check")
                    self.assertRegex(text, r"y +%s +\d.*ok\n" % dtype)
                    self.assertNotIn("BROKEN", text)
                    text = self.succeed("run", op, "--backward", *tensors, "--dy", "random:4", "--ds", "random:5",
                                        "--dtype", dtype, *rounding, "--check", "--json", "-")
                    check = json.loads(text)["check"]
                    self.assertEqual([line["output"] for line in check], ["dx", "dresidual", "dweight", "dbias"])
                    self.assertTrue(all(line["passed"] for line in check), check)

    def test_check_takes_given_statistics_as_they_are(self):
        self.put("x.npy", npy((1, 4), [1, 2, 3, 4]))
        self.put("rstd.npy", npy((1,), [0.5]))
        self.succeed("run", "rms_norm", "--backward", "--x", "x.npy", "--dy", "ones", "--rstd", "rstd.npy", "--check")

    def test_summary_and_json(self):
        self.put("x.npy", npy((1, 2), [2, 2]))
        text = self.succeed("run", "rms_norm", "--x", "x.npy", "--eps", "0", "--threads", "2", "--isa", "scalar")
        ones = fnv1a64(b"\x00\x00\x80\x3f" * 2)
        self.assertIn("rms_norm forward: 1 rows of 2, x f32", text)
        self.assertIn("scalar, 2 threads", text)
        self.assertIn("%016x" % ones, text)
        report = json.loads(self.succeed("run", "rms_norm", "--x", "x.npy", "--eps", "0", "--json", "-"))
        self.assertEqual((report["op"], report["direction"], report["rows"], report["n"]), ("rms_norm", "forward", 1, 2))
        self.assertEqual(report["inputs"], {"x": "f32"})
        y = {"name": "y", "dtype": "f32", "shape": [1, 2], "fnv1a64": "%016x" % ones}
        self.assertEqual(report["outputs"][0], y)
        self.assertGreaterEqual(report["seconds"], 0)

    def test_time(self):
        self.put("x.npy", npy((8, 128), [float(i % 5) for i in range(1024)]))
        arguments = ["run", "rms_norm", "--x", "x.npy", "--weight", "ones", "--time"]
        self.assertRegex(self.succeed(*arguments), r"median of \d+: .* a copy of the same bytes: .* ratio \d")
        timing = json.loads(self.succeed(*arguments, "--json", "-"))["timing"]
        self.assertGreaterEqual(timing["runs"], 5)
        self.assertEqual(timing["bytes"], 2 * 4096 + 512 + 32)
        self.assertGreater(timing["copy_seconds"], 0)

    def test_npy_types(self):
        self.put("x.npy", npy((1, 2), [2, 2], "<f2"))
        self.succeed("run", "rms_norm", "--x", "x.npy", "--eps", "0", "--out", "y=y.npy", "--out", "rstd=r.npy")
        self.assertEqual(parse_npy(self.path("y.npy")), ("<f2", (1, 2), [1, 1]))
        self.assertEqual(parse_npy(self.path("r.npy")), ("<f4", (1,), [0.5]))
