"""Runs the truenorm command in a folder of its own."""

import os
import subprocess
import tempfile
import unittest

COMMAND = os.environ["TRUENORM_COMMAND"]


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def files(self):
        """Every file's name and content."""
        found = {}
        for name in sorted(os.listdir(self.folder)):
            if os.path.isfile(self.path(name)):
                with open(self.path(name), "rb") as file:
                    found[name] = file.read()
            else:
                found[name] = None
        return found

    def call(self, *arguments):
        return subprocess.run(
            [COMMAND, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )

    def succeed(self, *arguments):
        """Runs it, and returns the standard output."""
        done = self.call(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode("utf-8")

    def refuse(self, *arguments, saying):
        """Runs it, and wants exit code 2, one line of error that holds each of `saying`, and nothing written."""
        before = self.files()
        done = self.call(*arguments)
        message = done.stderr.decode("utf-8", "replace")
        self.assertEqual(done.returncode, 2, (arguments, message))
        self.assertEqual(done.stdout, b"", arguments)
        self.assertTrue(message.startswith("truenorm: ") and message.endswith("\n"), message)
        self.assertEqual(message.count("\n"), 1, message)
        for text in [saying] if isinstance(saying, str) else saying:
            self.assertIn(text, message, arguments)
        self.assertEqual(self.files(), before, arguments)
