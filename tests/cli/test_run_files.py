"""The files that `truenorm run` writes: whole or not at all, and only where they may be."""

import json
import os
import stat
import subprocess

from command import COMMAND, CommandTest
from tensors import npy, parse_npy, parse_safetensors, safetensors


class RunFiles(CommandTest):
    def setUp(self):
        super().setUp()
        self.put("x.npy", npy((2, 2), [1, 2, 3, 4]))
        self.inputs = ["run", "rms_norm", "--x", "x.npy"]

    def test_nothing_is_written_unasked(self):
        before = self.files()
        self.succeed(*self.inputs)
        self.assertEqual(self.files(), before)

    def test_only_what_is_asked_for(self):
        self.succeed(*self.inputs, "--out", "rstd=only.safetensors")
        self.assertEqual(set(parse_safetensors(self.path("only.safetensors"))), {"rstd"})
        self.assertEqual(set(self.files()), {"x.npy", "only.safetensors"})

    def test_npy_and_safetensors_agree(self):
        self.succeed(*self.inputs, "-o", "all.safetensors")
        self.succeed(*self.inputs, "--out", "y=y.npy", "--out", "rstd=./rstd.npy", "--json", "report.json")
        everything = parse_safetensors(self.path("all.safetensors"))
        self.assertEqual(parse_npy(self.path("y.npy"))[1:], everything["y"][1:])
        self.assertEqual(parse_npy(self.path("rstd.npy"))[1:], everything["rstd"][1:])
        with open(self.path("report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual([output["file"] for output in report["outputs"]], ["y.npy", "./rstd.npy"])

    def test_outputs_can_be_inputs(self):
        self.succeed(*self.inputs, "-o", "one.safetensors")
        self.succeed("run", "rms_norm", "--x", "one.safetensors:y", "-o", "two.safetensors")
        self.succeed("run", "rms_norm", "--x", "two.safetensors:y", "--out", "y=y.npy")
        self.succeed("run", "rms_norm", "--x", "y.npy")

    def test_mixed_types_stay_aligned(self):
        self.put("t.safetensors", safetensors({"x": ("BF16", (3, 1), [1, 2, 4])}))
        self.succeed("run", "layer_norm", "--x", "t.safetensors", "-o", "out.safetensors")
        self.assertEqual(parse_safetensors(self.path("out.safetensors"))["y"][0], "BF16")

    def test_an_older_file_is_replaced(self):
        self.put("out.safetensors", b"old")
        self.succeed(*self.inputs, "-o", "out.safetensors")
        self.assertIn("y", parse_safetensors(self.path("out.safetensors")))
        self.assertEqual(set(self.files()), {"x.npy", "out.safetensors"})

    def test_permissions_follow_the_umask(self):
        self.succeed(*self.inputs, "-o", "out.safetensors")
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out.safetensors")).st_mode), 0o666 & ~mask)

    def test_inputs_are_never_overwritten(self):
        self.put("t.safetensors", safetensors({"x": ("F32", (1, 1), [1])}))
        os.symlink("t.safetensors", self.path("link.safetensors"))
        os.link(self.path("t.safetensors"), self.path("hard.safetensors"))
        for output in ["t.safetensors", "./t.safetensors", "link.safetensors", "hard.safetensors"]:
            self.refuse("run", "rms_norm", "--x", "t.safetensors:x", "-o", output, saying=[output, "is an input"])
        self.refuse(*self.inputs, "--out", "y=x.npy", saying="is an input")
        self.refuse(*self.inputs, "--json", "x.npy", saying="is an input")
        self.refuse(*self.inputs, "--weight", "t.safetensors:x", "-o", "t.safetensors", saying="is an input")

    def test_places_that_cannot_be_written(self):
        os.mkdir(self.path("folder.safetensors"))
        self.refuse(*self.inputs, "-o", "no/out.safetensors", saying=["no/out.safetensors", "No such file"])
        self.refuse(*self.inputs, "-o", "x.npy/out.safetensors", saying="Not a directory")
        self.refuse(*self.inputs, "-o", "folder.safetensors", saying="not a regular file")
        self.refuse(*self.inputs, "--json", "/dev/null", saying="not a regular file")
        self.refuse(*self.inputs, "-o", "n" * 300 + ".safetensors", saying="File name too long")

    def test_names(self):
        self.refuse(*self.inputs, "-o", "out.npz", saying=[".safetensors", "out.npz"])
        self.refuse(*self.inputs, "--out", "y", saying="NAME=FILE")
        self.refuse(*self.inputs, "--out", "y=", saying="NAME=FILE")
        self.refuse(*self.inputs, "--out", "y=y.txt", saying="NAME=FILE")
        self.refuse(*self.inputs, "--out", "z=z.npy", saying=["'z'", "y, s, rstd"])
        self.refuse(*self.inputs, "--out", "mean=m.npy", saying=["'mean'", "rms_norm forward"])
        self.refuse(*self.inputs, "--out", "dx=dx.npy", saying="'dx'")
        self.refuse(*self.inputs, "--out", "s=s.npy", saying="--residual")
        self.refuse(*self.inputs, "--out", "y=a.npy", "--out", "y=b.npy", saying="asked for twice")
        self.refuse(*self.inputs, "--out", "y=a.npy", "--out", "rstd=./a.npy", saying="written twice")
        self.refuse(*self.inputs, "--out", "y=a.npy", "--json", "a.npy", saying="written twice")
        self.refuse(*self.inputs, "-o", "a.safetensors", "--out", "y=b.npy", saying="--out")

    def test_bf16_does_not_fit_npy(self):
        for extra in [["--dtype", "bf16"], ["--out-dtype", "bf16"]]:
            self.refuse(*self.inputs, *extra, "--out", "rstd=r.npy", "--out", "y=y.npy",
                        saying=["bf16", ".safetensors", "f32"])
        self.succeed(*self.inputs, "--dtype", "bf16", "--out-dtype", "f32", "--out", "y=y.npy")

    def test_gradients_without_their_parameters(self):
        backward = ["run", "layer_norm", "--backward", "--x", "x.npy", "--dy", "ones"]
        self.succeed(*backward, "--out", "dbias=b.npy")
        self.assertEqual(parse_npy(self.path("b.npy"))[2], [2, 2])
        self.refuse(*backward, "--out", "dweight=w.npy", saying="--out 'dweight=w.npy': dweight needs --weight")

    def test_a_broken_bar_writes_nothing(self):
        # The square of 1e25 overflows FP32, as it does in PyTorch, and not the FP64 oracle.
        self.put("x.npy", npy((1, 2), [1e25, -1e25]))
        before = self.files()
        done = self.call(*self.inputs, "--check", "-o", "out.safetensors", "--json", "report.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"BROKEN", done.stdout)
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertIn(b"bar", done.stderr)
        self.assertEqual(self.files(), before)

    def test_a_full_standard_output_is_an_error(self):
        verify = ["verify", "--n", "5", "--m", "1", "--op", "rms_norm", "--json", "-"]
        for arguments in [["info"], ["--help"], ["--version"], ["run", "--help"], verify]:
            with self.subTest(arguments=arguments), open("/dev/full", "wb") as full:
                done = subprocess.run([COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=60)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, rb"(?m)^truenorm: cannot write to (the standard output|file: .*)\n$")

    def test_no_command_replaces_what_is_not_a_regular_file(self):
        for arguments in [["verify", "--n", "5"], ["bench", "--quick"], [*self.inputs]]:
            os.mkfifo(self.path("pipe.json"))
            os.symlink("pipe.json", self.path("link.json"))
            for name in ["pipe.json", "link.json"]:
                self.refuse(*arguments, "--json", name, saying=[name, "not a regular file"])
            self.assertTrue(stat.S_ISFIFO(os.lstat(self.path("pipe.json")).st_mode))
            self.assertTrue(os.path.islink(self.path("link.json")))
            os.remove(self.path("link.json"))
            os.remove(self.path("pipe.json"))
