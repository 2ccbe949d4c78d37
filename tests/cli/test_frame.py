"""The command's frame: help, version, info, exit codes."""

import json
import platform
import re

from command import CommandTest


class Frame(CommandTest):
    def test_help_of_each_has_examples(self):
        for arguments in [[], ["info"], ["run"], ["verify"], ["bench"]]:
            with self.subTest(arguments=arguments):
                text = self.succeed(*arguments, "--help")
                self.assertIn("Examples:", text)
                self.assertIn("truenorm " + " ".join(arguments), text)

    def test_help_lists_the_subcommands(self):
        text = self.succeed("--help")
        for name in ["info", "run", "verify", "bench"]:
            self.assertRegex(text, r"\n  %s +\w" % name)

    def test_version(self):
        self.assertRegex(self.succeed("--version"), r"^truenorm \d+\.\d+\.\d+ \(order version \d+(, not frozen)?\)\n$")

    def test_info(self):
        text = self.succeed("info")
        for label in ["version", "order version", "backends", "instruction sets", "devices", "hardware threads"]:
            self.assertRegex(text, r"(?m)^%s  +\S" % label)

    def test_info_json(self):
        info = json.loads(self.succeed("info", "--json"))
        self.assertTrue(re.fullmatch(r"\d+\.\d+\.\d+", info["version"]))
        self.assertEqual(info["order_frozen"], info["order_version"] != 0)
        self.assertIn("cpu", info["backends"])
        self.assertIn("scalar", info["instruction_sets"])
        self.assertIn(info["auto_instruction_set"], info["instruction_sets"])
        # Which of them are built in depends on the architecture alone, and each is on one list.
        sets = sorted(info["instruction_sets"] + info["instruction_sets_not_on_this_cpu"])
        expected = {"x86_64": ["avx2", "avx512", "scalar"], "aarch64": ["neon", "scalar"]}
        self.assertEqual(sets, expected.get(platform.machine(), sets))
        self.assertEqual(info["devices"]["cpu"], 1)
        self.assertEqual(len(info["cuda_devices"]), info["devices"]["cuda"])
        self.assertGreaterEqual(info["hardware_threads"], 1)

    def test_wrong_command_lines(self):
        self.refuse(saying=["subcommand", "truenorm --help"])
        self.refuse("fly", saying=["fly", "truenorm --help"])
        self.refuse("--fly", saying=["--fly", "truenorm --help"])
        self.refuse("info", "--fly", saying=["--fly", "truenorm info --help"])
        self.refuse("info", "a\nb\x1b", saying=["a\\x0ab\\x1b", "truenorm info --help"])
        self.refuse("run", saying="truenorm run --help")
        self.refuse("run", "rms_norm", saying=["--x", "truenorm run --help"])
        self.refuse("run", "rms_norm", "--x", saying="--x")

    def test_numbers(self):
        """What an option got and what it takes, before anything is run."""
        for command, option, values in [
            ("verify", "--n", ["0", "-5", "abc", "2147483649", "99999999999999999999"]),
            ("verify", "--m", ["-1", "1.5", "99999999999999999999"]),
            ("verify", "--seed", ["-1", "abc", "1.5"]),
            ("verify", "--threads", ["0", "two"]),
            ("bench", "--rounds", ["0", "-1", "abc", "1001"]),
            ("bench", "--sample-ms", ["0", "-5", "nan", "abc"]),
            ("bench", "--rotate-mb", ["0", "-1", "999999999", "abc"]),
        ]:
            for value in values:
                self.refuse(command, option, value, saying=[option, "takes", "got"])
        self.refuse("verify", "--n", "2000000000", saying=["--n 2000000000 with --m", "elements"])

    def test_options_given_twice(self):
        self.refuse("run", "rms_norm", "--x", "a.npy", "--x", "b.npy", saying=["--x", "2 times", "one"])
        self.refuse("verify", "--threads", "1", "--threads", "1", saying=["--threads", "2 times", "one"])
