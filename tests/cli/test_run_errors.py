"""What `truenorm run` refuses: operands that do not fit, values, options."""

import json
import math

from command import CommandTest
from tensors import npy, safetensors


class RunErrors(CommandTest):
    def setUp(self):
        super().setUp()
        self.put("x.npy", npy((2, 4), [1, 2, 3, 4, 5, 6, 7, 8]))
        self.put("w.npy", npy((4,), [1, 2, 3, 4]))
        self.put("w5.npy", npy((5,), [1, 2, 3, 4, 5]))
        self.put("w22.npy", npy((2, 2), [1, 2, 3, 4]))
        self.put("w24.npy", npy((2, 4), [1] * 8))
        self.put("r2.npy", npy((2,), [1, 1]))

    def refuse_run(self, *arguments, saying):
        self.refuse("run", *arguments, "-o", "out.safetensors", saying=saying)

    def test_shapes(self):
        self.refuse_run("rms_norm", "--x", "x.npy", "--weight", "w5.npy", saying=["--weight", "(5,)", "(2, 4)"])
        self.refuse_run("rms_norm", "--x", "x.npy", "--weight", "w22.npy", saying=["--weight", "(2, 2)", "(2, 4)"])
        self.refuse_run("layer_norm", "--x", "x.npy", "--bias", "w5.npy", saying=["--bias", "(5,)", "(2, 4)"])
        self.refuse_run("layer_norm", "--x", "x.npy", "--weight", "w24.npy", "--bias", "w.npy",
                        saying=["--bias", "(4,)", "(2, 4)"])
        self.refuse_run("rms_norm", "--x", "x.npy", "--residual", "w.npy", saying=["--residual", "(4,)", "(2, 4)"])
        self.put("scalar.npy", npy((), [1]))
        self.refuse_run("rms_norm", "--x", "x.npy", "--weight", "scalar.npy", saying=["--weight", "()"])
        backward = ["rms_norm", "--backward", "--x", "x.npy"]
        self.refuse_run(*backward, "--dy", "w5.npy", saying=["--dy", "(5,)", "(2, 4)"])
        self.refuse_run(*backward, "--ds", "w22.npy", saying=["--ds", "(2, 2)", "(2, 4)"])
        self.refuse_run(*backward, "--dy", "ones", "--rstd", "w5.npy", saying=["--rstd", "(5,)", "(2,)"])
        self.put("r16.npy", npy((2,), [1, 1], "<f2"))
        self.refuse_run(*backward, "--dy", "ones", "--rstd", "r16.npy", saying=["--rstd", "f16", "f32"])

    def test_bad_files_name_their_operand(self):
        self.put("bad.npy", b"no array")
        for option in ["--residual", "--weight", "--bias", "--dy", "--ds", "--rstd"]:
            x = ["rms_norm", "--x", "x.npy"] + (["--backward"] if option in ["--dy", "--ds", "--rstd"] else [])
            x += ["--dy", "ones"] if option == "--rstd" else []
            for file, what in [("bad.npy", "not a .npy file"), ("none.npy", "No such file"), ("x.txt", ".safetensors")]:
                self.refuse_run(*x, option, file, saying=[option + ": ", file, what])
        self.refuse_run("rms_norm", "--x", "bad.npy", saying="--x: 'bad.npy': ")

    def test_rows(self):
        for rows in ["1", "1:", ":1", "a:b", "0:1:2", "0 : 1", "0:99999999999999999999", "1.5:2"]:
            self.refuse_run("rms_norm", "--x", "x.npy", "--rows", rows, saying=["--rows", "A:B"])
        for rows in ["0:3", "2:1", "-1:2", "3:3"]:
            self.refuse_run("rms_norm", "--x", "x.npy", "--rows", rows, saying=["--rows", "rows 0 to 2"])

    def test_nonfinite(self):
        self.put("x.npy", npy((2, 4), [1, 2, 3, 4, 5, math.nan, math.inf, -math.inf]))
        self.refuse_run("rms_norm", "--x", "x.npy", saying=["--x", "3 values are not finite", "(1, 1)", "--allow-nonfinite"])
        self.put("x.npy", npy((2, 4), [math.nan] * 8, "<f2"))
        self.refuse_run("rms_norm", "--x", "x.npy", saying=["8 values are not finite", "(0, 0)"])
        self.put("x.npy", npy((2, 4), [1] * 8))
        self.put("w.npy", npy((4,), [1, 1, 1, math.inf]))
        self.refuse_run("rms_norm", "--x", "x.npy", "--weight", "w.npy", saying=["--weight", "1 value is not finite", "(3,)"])
        self.put("t.safetensors", safetensors({"b": ("BF16", (4,), [1, 1, math.nan, 1])}))
        self.refuse_run("rms_norm", "--x", "x.npy", "--bias", "t.safetensors:b", saying=["--bias", "(2,)"])
        self.put("rstd.npy", npy((2,), [1, math.nan]))
        self.refuse_run("rms_norm", "--backward", "--x", "x.npy", "--dy", "ones", "--rstd", "rstd.npy", saying="--rstd")

    def test_too_large_for_the_type(self):
        self.put("x.npy", npy((2, 2), [1, 2, 65520, 4]))
        self.refuse_run("rms_norm", "--x", "x.npy", "--dtype", "f16", saying=["1 value is too large for f16", "(1, 0)"])

    def test_bad_option_values(self):
        x = ["--x", "x.npy"]
        self.refuse_run("rms_nrom", *x, saying=["'rms_nrom'", "rms_norm or layer_norm"])
        self.refuse_run("rms_norm", *x, "--dtype", "f64", saying=["--dtype", "'f64'", "f32, f16, bf16"])
        self.refuse_run("rms_norm", *x, "--out-dtype", "F32", saying=["--out-dtype", "'F32'"])
        self.refuse_run("rms_norm", *x, "--residual-dtype", "i8", saying=["--residual-dtype", "'i8'"])
        self.refuse_run("rms_norm", *x, "--weight-dtype", "int", saying=["--weight-dtype", "'int'"])
        self.refuse_run("rms_norm", *x, "--rounding", "up", saying=["--rounding", "'up'", "once, gemma, llama"])
        self.refuse_run("layer_norm", *x, "--rounding", "llama", saying=["--rounding llama", "rms_norm"])
        self.refuse_run("rms_norm", *x, "--isa", "sse", saying=["--isa", "'sse'", "avx2"])
        self.refuse_run("rms_norm", *x, "--device", "tpu", saying=["--device", "'tpu'", "cpu, cuda"])
        for threads in ["0", "-1", "1025", "two", "1.5", "99999999999"]:
            self.refuse_run("rms_norm", *x, "--threads", threads, saying="--threads")
        for eps in ["nan", "inf", "1e40", "-1e-6"]:
            self.refuse_run("rms_norm", *x, "--eps", eps, saying=["--eps", "takes", "got"])
        for offset in ["nan", "-inf", "1e40"]:
            self.refuse_run("rms_norm", *x, "--offset", offset, saying=["--offset", "takes", "got"])
        self.refuse_run("rms_norm", *x, "--eps", "small", saying=["--eps", "'small'", "takes"])
        self.refuse_run("rms_norm", *x, "extra", saying="extra")

    def test_instruction_set_that_is_not_there(self):
        there = json.loads(self.succeed("info", "--json"))["instruction_sets"]
        for isa in ["avx2", "avx512", "neon"]:
            if isa not in there:
                self.refuse_run("rms_norm", "--x", "x.npy", "--isa", isa, saying=["--isa", isa])

    def test_cuda_where_there_is_none(self):
        if json.loads(self.succeed("info", "--json"))["devices"]["cuda"] == 0:
            self.refuse_run("rms_norm", "--x", "x.npy", "--device", "cuda", saying=["--device cuda", "CUDA"])

    def test_cuda_device_that_is_not_there(self):
        for device in ["cuda:", "cuda:-1", "cuda:one", "cuda:99999999999"]:
            self.refuse_run("rms_norm", "--x", "x.npy", "--device", device, saying=["--device", "cuda:1"])
        self.refuse_run("rms_norm", "--x", "x.npy", "--device", "cuda:4095", saying=["--device cuda", "CUDA"])

    def test_combinations(self):
        x = ["--x", "x.npy"]
        for option in ["--dy", "--ds", "--mean", "--rstd"]:
            self.refuse_run("rms_norm", *x, option, "x.npy", saying=[option, "--backward"])
        self.refuse_run("rms_norm", "--backward", *x, saying=["--dy", "--ds"])
        self.refuse_run("rms_norm", "--backward", *x, "--dy", "ones", "--mean", "r2.npy", saying="--mean")
        backward = ["layer_norm", "--backward", *x, "--dy", "ones"]
        self.refuse_run(*backward, "--mean", "r2.npy", saying=["--mean", "--rstd"])
        self.refuse_run(*backward, "--rstd", "r2.npy", saying=["--rstd", "--mean"])
        self.refuse_run("rms_norm", "--backward", *x, "--dy", "ones", "--rstd", "r2.npy", "--residual", "x.npy",
                        saying=["--residual", "--rstd"])

    def test_made_up(self):
        self.refuse_run("rms_norm", "--x", "random:1", saying=["--x", "file"])
        self.refuse_run("rms_norm", "--x", "ones", saying=["--x", "file"])
        for seed in ["", "x", "-1", "1.5", "18446744073709551616", "1 "]:
            self.refuse_run("rms_norm", "--backward", "--x", "x.npy", "--dy", "random:" + seed, saying=["--dy", "seed"])
