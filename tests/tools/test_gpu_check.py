"""tools/gpu_check without a GPU: in a folder of its own, with programs that play the command, the tests and the
sanitizer."""

import json
import os
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree as ElementTree

from tools_copy import TOOLS, copied_tools

sys.path.insert(0, str(TOOLS))
import gpu_record  # noqa: E402
import gpu_sweep  # noqa: E402
import gpu_widths  # noqa: E402

# Each program says what the variable of its own name holds, when it holds something, and fails.
TRUENORM = r"""
import json, os, sys
def line(**more):
    return dict(operation="rms_norm", rounding="once", kind="uniform", elements=1000, correct=999, correct_share=0.999,
                worst_ulp=1, worst_fp32_units=0.5, relative_l2=1.6e-3, ideal_relative_l2=1.6e-3, passed=True) | more
def times(us):
    return dict(median_us=us, min_us=us - 1, max_us=us + 1)
def result(direction, us=10.0):
    return times(us) | dict(op="rms_norm", direction=direction, floor=times(8.0), ratio=us / 8, cold=times(20.0),
                            cold_floor=times(16.0), cold_ratio=1.25, bytes=65536, workspace_bytes=0)
def group(shape, *directions):  # rows of 4097 take twice as long
    m, n = map(int, shape.split("x"))
    us = 20.0 if n == 4097 else 10.0
    (dtype,) = option("--dtype", ["bf16"])
    (weight_dtype,), (gap,) = option("--weight-dtype", [dtype]), option("--row-gap", ["0"])
    return dict(m=m, n=n, dtype=dtype, weight_dtype=weight_dtype, row_gap=int(gap), in_place="--in-place" in sys.argv,
                noise=1.01, results=[result(d, us) for d in directions])
def option(name, otherwise):
    return sys.argv[sys.argv.index(name) + 1].split(",") if name in sys.argv else otherwise
kind = sys.argv[1]
step = kind
if kind == "bench":
    step = os.path.basename(option("--json", None)[0])[:6].rstrip(".")  # bench, sweep or widths
gigabytes = int(os.environ.get("GIGABYTES", 140))
devices = [dict(name="Vendor GPU 7", compute_capability="9.0", memory_bytes=gigabytes << 30)]
if os.environ.get("NO_DEVICE"): devices = []
reports = dict(
    info=dict(version="1.2.3", order_version=1, cuda_devices=devices),
    verify=dict(coverage=dict(cases=5), lines=[
        line(direction="forward", dtype="bf16"),
        line(direction="backward", dtype="f32", worst_weight_gradient_over_bar=0.5)]),
    bench=dict(groups=[group(s, *option("--direction", ["forward", "backward", "frozen"]))
                       for s in option("--shape", ["4x4096"])]))
text = json.dumps(reports[kind])
if kind == "info":
    print(text)
else:
    open(sys.argv[sys.argv.index("--json") + 1], "w").write(text)
if os.environ.get("BREAK") == step:
    sys.exit("a bar is broken")
"""
CUDA_TEST = r"""
import json, os, sys, time
if os.environ.get("BREAK") == "slow": time.sleep(60)
result = "SKIPPED" if os.environ.get("BREAK") == "skip" else "COMPLETED"
failed = os.environ.get("BREAK") == "tests" and not any("filter" in argument for argument in sys.argv)
print("[  PASSED  ] 2 tests.")
if failed: print("[  FAILED  ] Suite.Name, where ...")
tests = [dict(status="RUN", result=result)] * 2
for argument in sys.argv:
    if argument.startswith("--gtest_output=json:"):
        open(argument[20:], "w").write(json.dumps(dict(failures=int(failed), testsuites=[dict(testsuite=tests)])))
sys.exit(int(failed))
"""
SANITIZER = r"""
import os, subprocess, sys
tool = sys.argv[sys.argv.index("--tool") + 1]
program = next(i for i, a in enumerate(sys.argv) if a.endswith("cuda_test"))
subprocess.run(sys.argv[program:], check=True)
broken = os.environ.get("BREAK") == tool
print("========= %s SUMMARY: %d errors" % ("RACECHECK" if tool == "racecheck" else "ERROR", broken))
sys.exit(9 if broken else 0)
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        sources = ["src/api/a.cpp", "src/cuda/kernels/k.cuh", "src/spec/s.hpp", "src/cli/main.cpp"]
        self.root = copied_tools(self, sources)
        self.program("binaries/truenorm", TRUENORM)
        self.program("binaries/cuda_test", CUDA_TEST)
        self.program("path/compute-sanitizer", SANITIZER)

    def program(self, name, text):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable} -ISB\n{text}")  # without what takes long to start
        path.chmod(0o755)

    def call(self, *arguments, **environment):
        path = f"{self.root / 'path'}{os.pathsep}{os.environ.get('PATH', '')}"
        return subprocess.run(
            [sys.executable, "-B", self.root / "tools/gpu_check", *arguments],
            env=os.environ | {"PATH": path} | environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def check(self, *arguments, code=0, **environment):
        done = self.call("--binaries", str(self.root / "binaries"), *arguments, **environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def record(self, folder="evidence"):
        return json.loads((self.root / folder / "vendor-gpu-7.json").read_text())

    def outcomes(self, folder="evidence"):
        return {step["name"]: step["outcome"] for step in self.record(folder)["steps"]}

    # ---- The whole

    def test_everything_passes(self):
        self.check()
        record = self.record()
        self.assertEqual(gpu_record.problems(record), [])
        self.assertTrue(record["passed"])
        self.assertFalse(record["quick"])
        self.assertEqual(record["sources_sha256"], gpu_record.sources_hash(self.root))
        self.assertEqual(self.outcomes().pop("build"), "not run")
        self.assertEqual({v for k, v in self.outcomes().items() if k != "build"}, {"passed"})
        text = (self.root / "evidence/vendor-gpu-7.md").read_text()
        for part in ["# Vendor GPU 7", "everything passed", "| rms_norm | 4 x 4096 | **1.25** (10.00 / 8.00)", "99.9000 %"]:
            self.assertIn(part, text)
        self.assertEqual(self.call("--stale").returncode, 0)

    def test_failed_tests_are_named(self):
        self.check("--only", "tests", "--output", str(self.root / "out"), code=1, BREAK="tests")
        (record,) = (self.root / "out").glob("*.json")
        (step,) = (step for step in json.loads(record.read_text())["steps"] if step["name"] == "tests")
        self.assertIn("failed: Suite.Name", step["detail"])
        self.assertEqual(step["detail"].count("Suite.Name"), 1)

    def test_a_failing_step_is_recorded_and_the_others_run(self):
        for broken in ["tests", "memcheck", "racecheck", "initcheck", "synccheck", "verify", "bench", "sweep", "widths"]:
            with self.subTest(broken=broken):
                self.check(code=1, BREAK=broken)
                self.assertFalse(self.record()["passed"])
                failed = [name for name, outcome in self.outcomes().items() if outcome == "failed"]
                self.assertEqual(failed, [broken])
                self.assertEqual(gpu_record.problems(self.record()), [])
                self.assertIn("NOT everything passed", (self.root / "evidence/vendor-gpu-7.md").read_text())
                self.assertEqual(bool(self.record()["accuracy"]), True)

    def test_time_runs_out(self):
        self.check("--timeout", "1", "--only", "tests", "--output", str(self.root / "out"), code=1, BREAK="slow")
        step = next(step for step in self.record("out")["steps"] if step["name"] == "tests")
        self.assertIn("time was up", step["detail"])
        self.assertLess(step["seconds"], 30)

    def test_skipped_tests_check_nothing(self):
        self.check("--only", "tests", code=1, BREAK="skip")
        self.assertEqual(self.outcomes("build-gpu")["tests"], "failed")

    def test_without_a_sanitizer(self):
        (self.root / "path/compute-sanitizer").unlink()
        if shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin:/opt/cuda/bin"):
            self.skipTest("this machine has one")
        self.check()
        self.assertEqual(self.outcomes()["memcheck"], "not run")

    def test_what_leaves_something_out_is_no_evidence(self):
        self.check("--quick")
        self.assertFalse((self.root / "evidence").exists())
        self.assertTrue(self.record("build-gpu")["quick"])
        self.assertEqual(self.outcomes("build-gpu")["racecheck"], "not run")
        self.check("--only", "verify,bench")
        self.assertEqual(self.outcomes("build-gpu")["tests"], "not run")

    def test_a_record_in_several_runs(self):
        self.check("--only", "tests,verify", "--add")
        self.assertEqual(self.outcomes()["bench"], "not run")
        self.check("--only", "bench", "--add", code=1, BREAK="bench")
        self.assertEqual(self.outcomes()["bench"], "failed")
        self.check("--only", "memcheck,racecheck,initcheck,synccheck", "--add", code=1)
        self.check("--only", "bench", "--add")
        self.assertEqual(self.outcomes()["sweep"], "not run")
        self.assertFalse((self.root / "evidence/vendor-gpu-7-sweep.svg").exists())
        self.check("--only", "sweep", "--add")
        self.assertEqual(self.outcomes()["widths"], "not run")
        self.check("--only", "widths", "--add")
        self.assertEqual({v for k, v in self.outcomes().items() if k != "build"}, {"passed"})
        self.assertTrue(self.record()["accuracy"] and self.record()["speed"] and self.record()["sweep"])
        self.check("--only", "bench", "--add")
        self.assertTrue(self.record()["sweep"] and self.record()["widths"])
        (self.root / "src/spec/s.hpp").write_text("another sum")
        self.assertIn("other sources", self.check("--only", "bench", "--add", code=2).stderr)

    def test_nothing_to_check_with(self):
        done = self.check(code=2, NO_DEVICE="1")
        self.assertEqual(done.stderr, "gpu_check: there is no CUDA device that can be used\n")
        (self.root / "binaries/cuda_test").unlink()
        self.assertIn("cuda_test", self.check(code=2).stderr)
        self.assertEqual(self.call("--only", "tests,dance").returncode, 2)

    # ---- The sweep

    def test_the_sweep_is_recorded_and_drawn(self):
        self.check("--only", "sweep")
        lines = self.record("build-gpu")["sweep"]
        self.assertEqual([(line["axis"], line["of"], line["direction"]) for line in lines],
                         [("n", "M = 2^25 / N", "forward"), ("n", "M = 2^25 / N", "backward"),
                          ("m", "N = 1024", "forward"), ("m", "N = 1024", "backward"),
                          ("m", "N = 4096", "forward"), ("m", "N = 4096", "backward")])  # fmt: skip
        for line in lines:
            places = [point[line["axis"]] for point in line["points"]]
            self.assertEqual(places, sorted(set(places)))
            for point in line["points"]:
                self.assertEqual(point["share"], 0.4 if point["n"] == 4097 else 0.8)
        self.assertEqual([point["n"] for point in lines[0]["points"]], gpu_sweep.HIDDEN)
        first = {"m": 1 << 19, "n": 64, "us": 10.0, "floor_us": 8.0, "share": 0.8, "noise": 1.01}
        self.assertEqual(lines[0]["points"][0], first)
        self.assertEqual([point["m"] for point in lines[2]["points"]], [1 << i for i in range(21)])
        self.assertEqual([point["m"] for point in lines[5]["points"]], [1 << i for i in range(17)])

        fall = {"part": 0.5, "from_m": 8192, "from_n": 4096, "to_m": 8190, "to_n": 4097}
        self.assertEqual([line["fall"]["part"] for line in lines], [0.5, 0.5, 0, 0, 0, 0])
        self.assertEqual(lines[1]["fall"], fall)
        deepest = "forward 50.0 % from N = 4096 to 4097"
        (step,) = (s for s in self.record("build-gpu")["steps"] if s["name"] == "sweep")
        self.assertIn(f"deepest fall: {deepest}", step["detail"])
        text = (self.root / "build-gpu/vendor-gpu-7.md").read_text()
        for part in [f"The deepest of all: {deepest}; that is a cliff.", "* over M: backward nowhere, N = 1024\n",
                     "](vendor-gpu-7-sweep.svg)", "| 4097 | **0.40** (20.00 / 8.00) | **0.40** (20.00 / 8.00) |",
                     "| 1048576 | **0.80** (10.00 / 8.00) | **0.80** (10.00 / 8.00) |  |  |"]:  # fmt: skip
            self.assertIn(part, text)

        drawing = ElementTree.parse(self.root / "build-gpu/vendor-gpu-7-sweep.svg").getroot()
        space = "{http://www.w3.org/2000/svg}"
        circles = drawing.findall(f"{space}circle")
        self.assertEqual(len(circles), sum(len(line["points"]) for line in lines))
        paths = drawing.findall(f"{space}polyline")
        self.assertEqual([len(path.get("points").split()) for path in paths], [len(line["points"]) for line in lines])
        for circle in circles:
            self.assertTrue(0 < float(circle.get("cx")) < 980 and 0 < float(circle.get("cy")) < 690)
        # Half the share is half the height over the axis.
        heights = {c.find(f"{space}title").text.split(",")[0]: float(c.get("cy")) for c in circles[: len(gpu_sweep.HIDDEN)]}
        self.assertAlmostEqual(heights["8190 x 4097"] - heights["8192 x 4096"], 0.4 * (330 - 50 - 45), delta=0.2)

    def test_a_quick_sweep_is_thin(self):
        self.check("--only", "sweep", "--quick")
        lines = self.record("build-gpu")["sweep"]
        self.assertEqual([point["n"] for point in lines[0]["points"]], gpu_sweep.QUICK_HIDDEN)
        self.assertLess(sum(len(line["points"]) for line in lines), 30)

    def test_a_small_gpu_is_swept_as_far_as_its_memory_goes(self):
        self.check("--only", "sweep", GIGABYTES="8")
        lines = self.record("build-gpu")["sweep"]
        self.assertEqual(lines[2]["points"][-1]["m"], 1 << 18)
        self.assertEqual([point["n"] for point in lines[0]["points"]], gpu_sweep.HIDDEN)

    # ---- The widths

    def test_the_widths_are_recorded(self):
        self.check("--only", "widths")
        lines = self.record("build-gpu")["widths"]
        self.assertEqual([(line["variant"], line["direction"]) for line in lines],
                         [(v, d) for v in gpu_widths.VARIANTS for d in ["forward", "backward"]])  # fmt: skip
        keys = ["dtype", "weight_dtype", "row_gap", "in_place"]
        self.assertEqual([[line[key] for key in keys] for line in lines[::2]],
                         [["bf16", "bf16", 0, False], ["f16", "f16", 0, False], ["f32", "f32", 0, False],
                          ["bf16", "f32", 0, False], ["bf16", "bf16", 8, False], ["bf16", "bf16", 1, False],
                          ["bf16", "bf16", 0, True]])  # fmt: skip
        for line in lines:
            self.assertEqual([point["n"] for point in line["points"]], gpu_widths.HIDDEN)
            for point in line["points"]:
                self.assertEqual(point["ratio"], 2.5 if point["n"] == 4097 else 1.25)
        first = {"m": 8192, "n": 512, "us": 10.0, "floor_us": 8.0, "ratio": 1.25, "noise": 1.01}
        self.assertEqual(lines[0]["points"][0], first)
        (step,) = (s for s in self.record("build-gpu")["steps"] if s["name"] == "widths")
        self.assertEqual(step["detail"], "27 widths, 7 variants; furthest from the copy: forward 2.50 at N = 4097, bf16")
        text = (self.root / "build-gpu/vendor-gpu-7.md").read_text()
        row = "| 4097 | 8192 |" + 7 * " **2.50** (20.00 / 8.00) |" + "\n"
        self.assertEqual(text.count(row), 2)
        for part in ["## Widths", "### forward, by N", "| N | M | bf16 | f16 | f32 | bf16, weight in f32 |", "in place |\n"]:
            self.assertIn(part, text)
        self.assertFalse((self.root / "build-gpu/vendor-gpu-7-sweep.svg").exists())

    def test_no_widths_in_a_quick_run(self):
        self.check("--quick")
        self.assertEqual(self.outcomes("build-gpu")["widths"], "not run")
        self.assertEqual(self.record("build-gpu")["widths"], [])
        self.assertNotIn("## Widths", (self.root / "build-gpu/vendor-gpu-7.md").read_text())

    def test_a_record_from_before_there_were_widths(self):
        self.check()
        path = self.root / "evidence/vendor-gpu-7.json"
        old = self.record()
        old.pop("widths")
        old["steps"] = [step for step in old["steps"] if step["name"] != "widths"]
        path.write_text(json.dumps(old))
        self.assertEqual(self.call("--stale").returncode, 0)
        self.assertNotIn("## Widths", gpu_record.markdown(old))
        self.check("--only", "widths", "--add")
        self.assertEqual(self.outcomes()["widths"], "passed")
        self.assertEqual(self.record()["sweep"], old["sweep"])

    # ---- Stale records

    def test_stale(self):
        done = self.call("--stale")
        self.assertEqual(done.returncode, 1)
        self.assertIn("holds no record", done.stderr)
        self.check()
        (self.root / "src/cli/main.cpp").write_text("not covered")
        self.assertEqual(self.call("--stale").returncode, 0)
        (self.root / "src/cuda/kernels/k.cuh").write_text("another kernel")
        done = self.call("--stale")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn("vendor-gpu-7.json is of", done.stderr)
        (self.root / "evidence/vendor-gpu-7.json").write_text("{}")
        self.assertIn("is no record", self.call("--stale").stderr)
        for text in ["{", "[" * 100000]:
            (self.root / "evidence/vendor-gpu-7.json").write_text(text)
            self.assertIn("not JSON", self.call("--stale").stderr)
        (self.root / "evidence/vendor-gpu-7.json").unlink()
        (self.root / "evidence/vendor-gpu-7.json").mkdir()
        self.assertIn("cannot be read", self.call("--stale").stderr)

    def test_a_record_of_a_failure_is_no_good(self):
        self.check(code=1, BREAK="racecheck")
        done = self.call("--stale")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not everything passed: racecheck", done.stderr)

    # ---- The parts

    def test_the_hash_is_of_names_and_contents(self):
        first = gpu_record.sources_hash(self.root)
        self.assertRegex(first, "^[0-9a-f]{64}$")
        self.assertEqual(first, gpu_record.sources_hash(str(self.root)))
        (self.root / "src/spec/s.hpp").rename(self.root / "src/spec/t.hpp")
        second = gpu_record.sources_hash(self.root)
        (self.root / "src/spec/new.hpp").write_text("")
        third = gpu_record.sources_hash(self.root)
        self.assertEqual(len({first, second, third}), 3)
        (self.root / "src/spec/new.hpp").unlink()
        (self.root / "src/spec/t.hpp").rename(self.root / "src/spec/s.hpp")
        self.assertEqual(first, gpu_record.sources_hash(self.root))

    def test_file_names(self):
        self.assertEqual(gpu_record.file_name("NVIDIA H200"), "nvidia-h200")
        self.assertEqual(gpu_record.file_name(" NVIDIA A100-SXM4-80GB "), "nvidia-a100-sxm4-80gb")

    def test_malformed_records_are_named(self):
        self.check()
        good = self.record()
        for change, saying in [
            (lambda r: r.pop("sources_sha256"), "sources_sha256"),
            (lambda r: r.update(sources_sha256="abc"), "sources_sha256"),
            (lambda r: r.update(format=99), "format"),
            (lambda r: r.update(passed=False), "passed"),
            (lambda r: r["device"].pop("driver"), "device.driver"),
            (lambda r: r["steps"][1].update(outcome="fine"), "steps[1].outcome"),
            (lambda r: r.update(steps=[None]), "steps[0].name"),
            (lambda r: r.update(speed=[None]), "speed[0].m"),
            (lambda r: r["speed"][0]["results"][2].pop("ratio"), "speed[0].results[2].ratio"),
            (lambda r: r["accuracy"][0].update(worst_ulp="1"), "accuracy[0].worst_ulp"),
            (lambda r: r.update(sweep={}), "sweep: got {}"),
            (lambda r: r["sweep"][1].update(axis="k"), "sweep[1].axis"),
            (lambda r: r["sweep"][1].update(points=[]), "sweep[1].points"),
            (lambda r: r["sweep"][1]["points"][3].pop("share"), "sweep[1].points[3].share"),
            (lambda r: r["sweep"][0]["fall"].update(to_n=4104), "sweep[0].fall"),
            (lambda r: r.update(widths={}), "widths: got {}"),
            (lambda r: r["widths"].append(7), "widths[14].variant"),
            (lambda r: r["widths"][2].pop("weight_dtype"), "widths[2].weight_dtype"),
            (lambda r: r["widths"][2].update(in_place="no"), "widths[2].in_place"),
            (lambda r: r["widths"][1].update(direction="up"), "widths[1].direction"),
            (lambda r: r["widths"][1].update(points=[]), "widths[1].points"),
            (lambda r: r["widths"][1]["points"][3].pop("ratio"), "widths[1].points[3].ratio"),
        ]:
            bad = json.loads(json.dumps(good))
            change(bad)
            self.assertIn(saying, " ".join(gpu_record.problems(bad)))
        self.assertNotEqual(gpu_record.problems([]), [])
        good.pop("sweep")  # as in records from before there were these
        good.pop("widths")
        self.assertEqual(gpu_record.problems(good), [])

    def test_dump_is_json_with_short_lines_kept_whole(self):
        value = {"a": 1, "b": [{"x": 1.5, "y": "é"}, {}], "c": [], "d": {"e": [1, 2]}}
        text = gpu_record.dump(value)
        self.assertEqual(json.loads(text), value)
        self.assertIn('{"x": 1.5, "y": "é"}', text.splitlines()[3])


if __name__ == "__main__":
    unittest.main()
