"""`truenorm info --plan`: which of the CUDA backend's kernels a call would get, and what is refused."""

import json
import re

from command import CommandTest

PRESETS = ["a100", "h100", "h200", "b200", "rtx5090"]


class InfoPlan(CommandTest):
    def plan(self, shape, *more):
        return json.loads(self.succeed("info", "--plan", "--shape", shape, *more, "--json"))

    def backward(self, shape, *more):
        return self.plan(shape, "--direction", "backward", *more)

    def check_launch(self, shape, *more):
        found = self.plan(shape, *more)
        launch = found["launch"]
        self.assertGreaterEqual(launch["thread_blocks"], 1)
        self.assertIn(launch["threads_per_block"], range(1, 1025))
        self.assertLessEqual(launch["shared_bytes"], found["device"]["shared_bytes_per_block"])

    def test_families(self):
        for kernel, direction, shape, *more in [
            ("forward", "forward", "1x4096"),
            ("forward", "forward", "8192x4096"),
            ("forward", "forward", "8192x4097", "--op", "add_layer_norm", "--dtype", "f32"),
            ("forward_wide", "forward", "4x200000"),
            ("backward_strips", "backward", "8192x768"),
            ("backward_strips", "frozen", "8192x4096", "--op", "layer_norm"),
            ("backward_strips", "backward", "8192x8192", "--op", "add_rms_norm"),
            ("backward_split", "backward", "1x4096"),
            ("backward_split", "backward", "128x4096"),
            ("backward_strips", "backward", "8192x4097"),
            ("backward_strips", "backward", "8192x4096", "--unaligned"),
            ("backward_split", "backward", "8192x20480"),
            ("backward_split_wide", "backward", "8192x200000"),
            ("backward_split_wide", "frozen", "4x200000", "--op", "add_layer_norm"),
        ]:
            with self.subTest(direction=direction, shape=shape, more=more):
                found = self.plan(shape, "--direction", direction, *more)
                self.assertEqual(found["kernel"], kernel)
                self.assertEqual(found["call"]["direction"], direction)
                m, n = (int(size) for size in shape.split("x"))
                self.assertEqual((found["call"]["m"], found["call"]["n"]), (m, n))

    def test_every_call_can_be_launched(self):
        for device in PRESETS:
            for op in ["rms_norm", "add_layer_norm"]:
                for direction in ["forward", "backward", "frozen"]:
                    for shape in ["1x1", "300x1000", "5000x4096", "5000x12288", "40x100000"]:
                        with self.subTest(device=device, op=op, direction=direction, shape=shape):
                            self.check_launch(shape, "--op", op, "--direction", direction, "--device", device)

    # LayerNorm's weight and bias want more shared memory than some devices have.
    def test_layer_norm_of_long_rows_where_shared_memory_is_small(self):
        self.check_launch("5000x16384", "--op", "layer_norm", "--device", "rtx5090")

    def test_teams_of_strips(self):
        for shape, team, cluster in [
            ("8192x768", "warp", 1),
            ("8192x2048", "part of a thread block", 1),
            ("8192x4096", "thread block", 1),
            ("8192x8192", "cluster", 2),
        ]:
            found = self.backward(shape)
            plan, launch = found["plan"], found["launch"]
            self.assertEqual((found["kernel"], plan["team"], plan["cluster"]), ("backward_strips", team, cluster))
            self.assertEqual(plan["threads"], 32 * plan["teams_per_thread_block"] * plan["warps_per_team"])
            self.assertEqual(launch["thread_blocks"], cluster * plan["groups"])
            self.assertEqual((launch["threads_per_block"], launch["shared_bytes"]), (plan["threads"], plan["shared_bytes"]))
            # A partial sum of each column for each group, and room for alignment; enough wherever rows start.
            self.assertGreaterEqual(found["workspace_bytes"], 4 * plan["groups"] * found["call"]["n"] + 63)
            self.assertTrue(launch["bounded_by_residence"])

    def test_layer_norm_has_two_gradients(self):
        one, two = self.backward("8192x4096"), self.backward("8192x4096", "--op", "layer_norm")
        self.assertEqual(two["workspace_bytes"] - 63, 2 * (one["workspace_bytes"] - 63))

    def test_a_frozen_weight_needs_no_workspace(self):
        for shape in ["8192x4096", "128x4096", "8192x200000"]:
            found = self.plan(shape, "--direction", "frozen")
            self.assertEqual((found["workspace_bytes"], found["counter_bytes"]), (0, 0))
            self.assertFalse(found["launch"]["bounded_by_residence"])
            self.assertEqual(found["plan"].get("slabs", 0), 0)

    def test_split(self):
        found = self.backward("128x4096")
        plan = found["plan"]
        self.assertEqual(plan["slabs"] * plan["columns_per_slab"], 4096)
        self.assertEqual(plan["row_blocks"] * plan["rows"]["rows_per_thread_block"], 128)
        self.assertEqual(found["launch"]["thread_blocks"], plan["slabs"] + plan["row_blocks"])
        self.assertEqual(self.backward("1x4096")["plan"]["row_blocks"], 1)

    def test_forward(self):
        """As many thread blocks as there are rows for them, each with some rows at a time, several times."""
        for shape in ["1x4096", "300x1000", "8192x128", "131072x128", "100001x65", "70000x257"]:
            found = self.plan(shape)
            plan, launch = found["plan"], found["launch"]
            each = plan["rows_per_thread_block"] * plan["turns"]
            self.assertEqual(launch["thread_blocks"], -(-found["call"]["m"] // each))
            self.assertEqual(plan["threads"], plan["rows_per_thread_block"] * plan["warps_per_row"] * plan["lanes_per_row"])
            self.assertEqual((launch["threads_per_block"], launch["shared_bytes"]), (plan["threads"], plan["shared_bytes"]))
        self.assertGreater(self.plan("131072x128", "--dtype", "f32")["plan"]["turns"], 1)

    def test_where_the_forward_keeps_things(self):
        """Narrow rows in registers, two chunks a thread where they are many; large vectors where they are."""
        few, many = self.plan("128x128")["plan"], self.plan("131072x128")["plan"]
        self.assertEqual((few["rows_in_registers"], few["chunks_per_thread"]), (True, 1))
        self.assertEqual((many["rows_in_registers"], many["chunks_per_thread"]), (True, 2))
        for arguments, kept in [
            (["8192x4096"], True),
            (["8192x18432", "--dtype", "f32"], False),
            (["8192x4096", "--dtype", "f32", "--op", "layer_norm"], False),
            (["8192x4096", "--op", "layer_norm"], True),
        ]:
            self.assertEqual(self.plan(*arguments)["plan"]["vectors_in_shared_memory"], kept, arguments)

    def test_in_place(self):
        """dx over dy: strips however few rows there are; where these do not serve, columns come first."""
        self.assertEqual(self.backward("8x4096")["kernel"], "backward_split")
        self.assertEqual(self.backward("8x4096", "--in-place")["kernel"], "backward_strips")
        self.assertEqual(self.backward("8x4096", "--in-place", "--unaligned")["kernel"], "backward_strips")
        ordered = self.backward("8x20480", "--in-place")
        self.assertEqual((ordered["kernel"], ordered["plan"]["ordered"]), ("backward_split", True))
        self.assertGreater(ordered["counter_bytes"], 0)

    def test_types(self):
        for dtype in ["f32", "f16", "bf16"]:
            self.assertEqual(self.backward("8192x4096", "--dtype", dtype)["kernel_dtype"], dtype)
        for direction in ["forward", "backward"]:
            for option in ["--residual-dtype", "--out-dtype"]:
                mixed = self.plan("64x4096", "--op", "add_rms_norm", "--direction", direction, option, "f32")
                self.assertEqual((mixed["call"]["dtype"], mixed["kernel_dtype"]), ("bf16", "f32"))
        self.assertFalse(self.plan("64x4097")["whole_chunks"])
        self.assertTrue(self.plan("64x4096")["whole_chunks"])

    def test_devices(self):
        names = [self.plan("64x64", "--device", name)["device"]["name"] for name in PRESETS]
        self.assertEqual(names, PRESETS)
        self.assertEqual(self.plan("64x64"), self.plan("64x64", "--device", "h200"))
        # Clusters came with 9.0; strips want shared memory; few multiprocessors are given more rows each.
        self.assertEqual(self.backward("8192x8192", "--capability", "8.6")["kernel"], "backward_split")
        self.assertEqual(self.backward("8192x4096", "--shared-bytes", "49152")["kernel"], "backward_split")
        many, few = self.plan("512x128"), self.plan("512x128", "--multiprocessors", "1")
        self.assertLess(many["plan"]["rows_per_thread_block"], few["plan"]["rows_per_thread_block"])
        changed = self.plan("64x64", "--device", "a100", "--capability", "12.1", "--multiprocessors", "9")["device"]
        self.assertEqual((changed["compute_capability"], changed["multiprocessors"]), ("12.1", 9))

    def test_wide_rows_stay_in_shared_memory_as_far_as_it_goes(self):
        small, large = self.plan("4x200000", "--shared-bytes", "49152"), self.plan("4x200000")
        self.assertLess(small["plan"]["cached_tiles"], large["plan"]["cached_tiles"])
        self.assertLessEqual(small["launch"]["shared_bytes"], 49152)

    def test_m_and_n(self):
        given = json.loads(self.succeed("info", "--plan", "--m", "300", "--n", "512", "--json"))
        self.assertEqual(given, self.plan("300x512"))

    def test_text_says_what_json_does(self):
        for shape, direction in [("8192x4096", "forward"), ("8192x4096", "backward"), ("128x4096", "backward")]:
            text = self.succeed("info", "--plan", "--shape", shape, "--direction", direction)

            def check(fields, indent, text=text):
                for key, value in fields.items():
                    label = " " * indent + key.replace("_", " ")
                    if isinstance(value, dict):
                        self.assertRegex(text, r"(?m)^%s$" % re.escape(label))
                        check(value, indent + 2)
                        continue
                    shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
                    self.assertRegex(text, r"(?m)^%s  +%s$" % (re.escape(label), re.escape(shown)))

            check(self.plan(shape, "--direction", direction), 0)

    def test_refused(self):
        for arguments, saying in [
            ([], ["--plan", "--shape", "--m and --n"]),
            (["--m", "3"], ["--plan", "--m and --n"]),
            (["--m", "0", "--n", "4"], ["--m", "takes 1 to", "got 0"]),
            (["--m", "1", "--n", "-4"], ["--n", "takes 1 to", "got -4"]),
            (["--m", "1", "--n", "2000000000"], ["--n", "takes 1 to", "2000000000"]),
            (["--m", "many", "--n", "4"], ["--m", "'many'", "numbers"]),
        ]:
            self.refuse("info", "--plan", *arguments, saying=saying)
        for arguments, saying in [
            (["--m", "3"], ["--shape", "--m"]),
            (["--op", "rms"], ["--op", "'rms'", "rms_norm"]),
            (["--direction", "up"], ["--direction", "'up'", "frozen"]),
            (["--dtype", "f64"], ["--dtype", "'f64'", "f32, f16, bf16"]),
            (["--out-dtype", "F32"], ["--out-dtype", "'F32'"]),
            (["--residual-dtype", "f32"], ["--residual-dtype", "add_rms_norm", "rms_norm"]),
            (["--in-place"], ["--in-place", "backward"]),
            (["--direction", "frozen", "--in-place", "--out-dtype", "f32"], ["--in-place", "--out-dtype"]),
            (["--device", "cpu"], ["--device", "'cpu'", "h200"]),
            (["--device", "cuda:x"], ["--device", "'cuda:x'", "h200"]),
            (["--device", "cuda:4095"], ["--device cuda", "CUDA"]),
            (["--multiprocessors", "0"], ["--multiprocessors", "takes 1 to", "got 0"]),
            (["--multiprocessors", "few"], ["--multiprocessors", "'few'", "numbers"]),
            (["--shared-bytes", "1024"], ["--shared-bytes", "takes 49152 to", "got 1024"]),
            (["--shape", "9x9"], ["--shape", "2 times", "one"]),
        ]:
            self.refuse("info", "--plan", "--shape", "8x8", *arguments, saying=saying)
        for capability in ["7.5", "9", "9.", "9.x", "nine", "9.0.1", "9.10", "-9.0", "100.0"]:
            self.refuse("info", "--plan", "--shape", "8x8", "--capability", capability,
                        saying=["--capability", "8.0", "'%s'" % capability])
        for shape in ["8", "8x", "0x8", "8x0", "axb", "8x8x8", "99999999999x99999999"]:
            self.refuse("info", "--plan", "--shape", shape, saying=["--shape"])
        self.refuse("info", "--plan", "--shape", "1x2000000000", saying=["--shape", "at most", "2000000000"])

    def test_goes_with_plan(self):
        for option in ["--shape", "--m", "--device", "--capability"]:
            self.refuse("info", option, "9", saying=[option, "--plan"])
        self.refuse("info", "--unaligned", saying=["--unaligned", "--plan"])
