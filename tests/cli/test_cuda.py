"""The command on a CUDA device, where there is one: the CPU's bits, and times."""

import json

from command import CommandTest
from tensors import npy


class Cuda(CommandTest):
    def setUp(self):
        super().setUp()
        if json.loads(self.succeed("info", "--json"))["devices"]["cuda"] == 0:
            self.skipTest("no CUDA device: nothing was checked")
        rows, n = 37, 520
        self.put("x.npy", npy((rows, n), [((i * 7919) % 1009 - 500) / 128 for i in range(rows * n)]))
        self.put("w.npy", npy((n,), [(i % 9 - 3) / 4 for i in range(n)]))

    def report(self, *arguments):
        return json.loads(self.succeed("run", *arguments, "--check", "--json", "-"))

    def test_bits(self):
        more = ["--residual", "random:3", "--weight", "w.npy", "--bias", "random:4", "--offset", "1"]
        for operation in ["rms_norm", "layer_norm"]:
            for direction in [[], ["--backward", "--dy", "random:5", "--ds", "random:6"]]:
                for dtype in ["f32", "f16", "bf16"]:
                    with self.subTest(operation=operation, direction=direction, dtype=dtype):
                        call = [operation, "--x", "x.npy", *more, *direction, "--dtype", dtype]
                        here, there = self.report(*call), self.report(*call, "--device", "cuda")
                        self.assertEqual(here["outputs"], there["outputs"])
                        self.assertEqual((here["device"], there["device"]), ("cpu", "cuda"))

    def test_no_rows(self):
        self.put("x.npy", npy((0, 520), []))
        call = ["rms_norm", "--x", "x.npy", "--weight", "w.npy"]
        self.assertEqual(self.report(*call)["outputs"], self.report(*call, "--device", "cuda")["outputs"])

    def test_time(self):
        report = self.report("rms_norm", "--x", "x.npy", "--device", "cuda:0", "--time")
        self.assertGreater(report["timing"]["call_seconds"], 0)
        self.assertGreater(report["timing"]["copy_seconds"], 0)
        self.assertIn("the copies to the device", self.succeed("run", "rms_norm", "--x", "x.npy", "--device", "cuda"))

    def test_verify(self):
        done = self.call("verify", "--device", "cuda", "--n", "1,384,4097", "--m", "0,3,130", "--json", "v.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("v.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertTrue(report["passed"])
        self.assertEqual(report["device"], "cuda")

    def test_bench(self):
        options = ["--quick", "--shape", "1x8,128x768", "--dtype", "bf16", "--rotate-mb", "8", "--json", "b.json"]
        for programmatic in [False, True]:
            done = self.call("bench", "--device", "cuda", *options, *["--programmatic"] * programmatic)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(self.path("b.json"), encoding="utf-8") as file:
                bench = json.load(file)
            self.assertEqual(bench["programmatic"], programmatic)
            self.assertEqual([group["m"] for group in bench["groups"]], [1, 128])
            for group in bench["groups"]:
                self.assertEqual(len(group["results"]), 12)
                for result in group["results"]:
                    self.assertGreater(result["median_us"], 0)
                    self.assertGreater(result["ratio"], 0)

    def test_bench_of_another_layout(self):
        options = ["--quick", "--shape", "5x512,300x4097,9x30000", "--dtype", "bf16,f32", "--rotate-mb", "8"]
        options += ["--weight-dtype", "f16", "--row-gap", "1", "--in-place", "--json", "b.json"]
        done = self.call("bench", "--device", "cuda", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("b.json"), encoding="utf-8") as file:
            groups = json.load(file)["groups"]
        self.assertEqual(len(groups), 6)
        for group in groups:
            self.assertEqual((group["weight_dtype"], group["row_gap"], group["in_place"]), ("f16", 1, True))
            self.assertEqual(len(group["results"]), 12)

    def test_plan(self):
        """What `info --plan` says of this device is what the library does on it."""
        shapes = "512x768,512x4096,512x8192,64x768"
        options = ["--quick", "--shape", shapes, "--dtype", "bf16", "--rotate-mb", "8", "--json", "b.json"]
        self.assertEqual(self.call("bench", "--device", "cuda", *options).returncode, 0)
        with open(self.path("b.json"), encoding="utf-8") as file:
            groups = json.load(file)["groups"]
        for group in groups:
            for result in group["results"]:
                call = {"shape": "%dx%d" % (group["m"], group["n"]), "op": result["op"], "direction": result["direction"]}
                with self.subTest(call=call):
                    options = [text for name, value in call.items() for text in ["--" + name, value]]
                    plan = json.loads(self.succeed("info", "--plan", "--device", "cuda", *options, "--json"))
                    self.assertEqual(plan["workspace_bytes"], result["workspace_bytes"])
                    self.assertLessEqual(plan["launch"]["shared_bytes"], plan["device"]["shared_bytes_per_block"])
        info = json.loads(self.succeed("info", "--json"))["cuda_devices"][0]
        for name in ["name", "multiprocessors", "compute_capability"]:
            self.assertEqual(plan["device"][name], info[name])

    def test_no_such_device(self):
        self.refuse("verify", "--device", "cuda:4095", saying=["cuda:4095", "CUDA devices"])
        self.refuse("bench", "--device", "cuda:4095", saying=["cuda:4095", "CUDA devices"])
        self.refuse("run", "rms_norm", "--x", "x.npy", "--device", "cuda", "--isa", "scalar", saying="--isa")
