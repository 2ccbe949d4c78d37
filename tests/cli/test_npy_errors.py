"""Hostile and mistaken .npy files."""

import os
import struct

from command import CommandTest
from tensors import encode, npy, raw_npy

GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n"
DATA = encode([1, 2, 3, 4], "F32")


class NpyErrors(CommandTest):
    def refuse_file(self, content, saying):
        self.put("x.npy", content)
        saying = [saying] if isinstance(saying, str) else saying
        self.refuse("run", "rms_norm", "--x", "x.npy", "-o", "out.safetensors", saying=["x.npy", *saying])

    def test_the_good_one_is_read(self):
        for version in [(1, 0), (2, 0), (3, 0)]:
            self.put("x.npy", raw_npy(GOOD, DATA, version))
            self.succeed("run", "rms_norm", "--x", "x.npy")

    def test_every_truncation(self):
        whole = raw_npy(GOOD, DATA)
        for size in range(len(whole)):
            self.put("x.npy", whole[:size])
            self.refuse("run", "rms_norm", "--x", "x.npy", "-o", "out.safetensors", saying="x.npy")

    def test_prefix(self):
        self.refuse_file(b"", "not a .npy")
        self.refuse_file(b"\x93NUMPX\x01\x00" + bytes(100), "not a .npy")
        self.refuse_file(b"PK\x03\x04" + bytes(100), "not a .npy")
        self.refuse_file(raw_npy(GOOD, DATA, (4, 0)), "version 4.0 is unknown")
        self.refuse_file(raw_npy(GOOD, DATA, (0, 0)), "version 0.0 is unknown")
        self.refuse_file(raw_npy(GOOD, DATA, (1, 7)), "version 1.7 is unknown")

    def test_header_length(self):
        self.refuse_file(b"\x93NUMPY\x01\x00\xff\xff" + GOOD.encode() + DATA, "ends inside its header")
        self.refuse_file(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + GOOD.encode() + DATA, "ends inside its header")
        self.refuse_file(raw_npy(GOOD + " " * 70000, DATA, (2, 0)), "too long")
        self.refuse_file(b"\x93NUMPY\x01\x00" + struct.pack("<H", 0) + DATA, "header")

    def test_header_grammar(self):
        for header in [
            "",
            "{",
            "[]",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)} more",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), 'shape': (2, 2)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), 'extra': 1}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 2)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': [2, 2]}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 2)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2 2)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': 4}",
            "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 2)}",
            "{descr: '<f4', 'fortran_order': False, 'shape': (2, 2)}",
            "{'descr': '<f4",
            "{'descr': __import__('os'), 'fortran_order': False, 'shape': (2, 2)}",
            "\0" * 64,
            b"\xff\xfe" * 40,
        ]:
            with self.subTest(header=header):
                self.refuse_file(raw_npy(header, DATA), "header")

    def test_shape(self):
        def of(shape, data=DATA):
            return raw_npy("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % shape, data)

        self.refuse_file(of("(-2, -2)"), "negative")
        self.refuse_file(of("(9223372036854775807, 2)"), "overflows")
        self.refuse_file(of("(4294967296, 4294967296)"), "overflows")
        self.refuse_file(of("(0, 4294967296, 4294967296)", b""), "overflows")
        self.refuse_file(of("(4611686018427387904,)"), "overflows")
        self.refuse_file(of("(99999999999999999999,)"), "64 bits")
        self.refuse_file(of("(" + "1, " * 65 + ")"), "more than 64 dimensions")
        self.refuse_file(of("(2, 3)"), "needs 24 bytes of data, the file has 16")
        self.refuse_file(of("(2, 1)"), "needs 8 bytes of data, the file has 16")
        self.refuse_file(raw_npy(GOOD, DATA + b"!"), "needs 16 bytes of data, the file has 17")
        self.refuse_file(of("()", encode([1], "F32")), "single number")
        self.refuse_file(of("(3, 0)", b""), "empty")

    def test_type(self):
        def of(descr, data=DATA):
            return raw_npy("{'descr': %s, 'fortran_order': False, 'shape': (2, 2), }" % descr, data)

        self.refuse_file(of("'>f4'"), "big-endian")
        self.refuse_file(of("'<f8'", DATA * 2), ["<f8", "f32"])
        self.refuse_file(of("'<i4'"), "<i4")
        self.refuse_file(of("'<U1'"), ["<U1", "f32"])
        self.refuse_file(of("'<i8'", DATA * 2), "<i8")
        self.refuse_file(of("'|b1'", b"\0" * 4), "|b1")
        self.refuse_file(of("'<V2'", b"\0" * 8), "bf16")
        self.refuse_file(of("'|V2'", b"\0" * 8), "bf16")
        self.refuse_file(of("'|O'"), "|O")
        self.refuse_file(of("'f4'"), "f4")
        self.refuse_file(of("'<f'"), "<f")
        self.refuse_file(of("'<f4x'"), "<f4x")
        self.refuse_file(of("'<f-4'"), "<f-4")
        self.refuse_file(of("'<f99999999999999999999'"), "<f9999")
        self.refuse_file(of("''"), "''")
        self.refuse_file(of("[('a', '<f4')]"), "structured")
        self.refuse_file(of("'\x1b[31m\n'"), "\\x1b[31m\\x0a")

    def test_fortran_order(self):
        self.refuse_file(raw_npy(GOOD.replace("False", "True"), DATA), "Fortran order")
        one = "{'descr': '<f4', 'fortran_order': True, 'shape': (4,), }"
        self.put("x.npy", raw_npy(one, DATA))
        self.succeed("run", "rms_norm", "--x", "x.npy")

    def test_not_a_file(self):
        self.refuse("run", "rms_norm", "--x", "no.npy", saying=["'no.npy'", "No such file"])
        self.refuse("run", "rms_norm", "--x", "x.npz", saying="neither a .npy nor a .safetensors")
        self.refuse("run", "rms_norm", "--x", "x", saying="neither a .npy nor a .safetensors")
        self.refuse("run", "rms_norm", "--x", "", saying="neither a .npy nor a .safetensors")
        self.put("x.npy", npy((2, 2), [1, 2, 3, 4]))
        self.refuse("run", "rms_norm", "--x", "x.npy:name", saying="no name")

    def test_not_regular(self):
        os.mkdir(self.path("folder.npy"))
        os.mkfifo(self.path("pipe.npy"))
        self.refuse("run", "rms_norm", "--x", "folder.npy", saying="not a regular file")
        self.refuse("run", "rms_norm", "--x", "pipe.npy", saying="not a regular file")
