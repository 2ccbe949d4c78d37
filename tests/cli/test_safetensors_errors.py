"""Hostile and mistaken .safetensors files."""

import json
import struct

from command import CommandTest
from tensors import encode, raw_safetensors, safetensors

DATA = encode([1, 2, 3, 4], "F32")


def entry(dtype="F32", shape=(2, 2), offsets=(0, 16), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


class SafetensorsErrors(CommandTest):
    def refuse_file(self, content, saying, name=""):
        self.put("x.safetensors", content)
        saying = [saying] if isinstance(saying, str) else saying
        self.refuse("run", "rms_norm", "--x", "x.safetensors" + name, "-o", "out.safetensors",
                    saying=["x.safetensors", *saying])

    def accept_file(self, content, name=""):
        self.put("x.safetensors", content)
        self.succeed("run", "rms_norm", "--x", "x.safetensors" + name)

    def test_good_ones_are_read(self):
        self.accept_file(raw_safetensors({"a": entry()}, DATA))
        self.accept_file(raw_safetensors(json.dumps({"a": entry()}) + "   ", DATA))
        self.accept_file(safetensors({"a": ("F32", (1,), [1])}, metadata={"format": "pt"}))
        mixed = {"ids": ("I64", (2,), [1, 2]), "w": ("F16", (2,), [1, 2]), "é:b": ("BF16", (1, 2), [1, 2])}
        self.accept_file(safetensors(mixed), ":w")
        empty = {"e": entry(shape=(0, 4), offsets=(0, 0)), "a": entry(), "f": entry(shape=(4, 0), offsets=(16, 16))}
        self.accept_file(raw_safetensors(empty, DATA), ":a")
        self.accept_file(raw_safetensors(empty, DATA), ":e")

    def test_misaligned_data(self):
        for pad in range(8):
            header = json.dumps({"f": entry("F8_E4M3", (1,), (0, 1)), "a": entry(offsets=(1, 17))}) + " " * pad
            self.accept_file(raw_safetensors(header, b"\0" + DATA), ":a")

    def test_every_truncation(self):
        whole = raw_safetensors({"a": entry()}, DATA)
        for size in range(len(whole)):
            self.put("x.safetensors", whole[:size])
            self.refuse("run", "rms_norm", "--x", "x.safetensors", "-o", "out.safetensors", saying="x.safetensors")

    def test_header_length(self):
        header = json.dumps({"a": entry()})
        self.refuse_file(raw_safetensors(header, DATA, 2**64 - 1), "100000000 are allowed")
        self.refuse_file(raw_safetensors(header, DATA, 2**63), "100000000 are allowed")
        self.refuse_file(raw_safetensors(header, DATA, 100_000_001), "100000000 are allowed")
        self.refuse_file(raw_safetensors(header, DATA, 100_000_000), "ends inside its header")
        self.refuse_file(raw_safetensors(header, DATA, len(header) - 1), "JSON")
        self.refuse_file(raw_safetensors(header, DATA, 0), "does not start with '{'")
        self.refuse_file(struct.pack("<Q", 0), "does not start with '{'")

    def test_header_is_not_json(self):
        for header in ["{", "{]", '{"a"}', '{"a": }', "{'a': 1}", "{} {}", '{"a": {"shape": [01', "{}\n,", '{"a\n": 1}', "{}{"]:
            with self.subTest(header=header):
                self.refuse_file(raw_safetensors(header, b""), "JSON")
        self.refuse_file(raw_safetensors(b'{"\xff\xfe": {}}', b""), "UTF-8")
        self.refuse_file(raw_safetensors(b'{"\xed\xa0\x80": {}}', b""), "UTF-8")
        self.refuse_file(raw_safetensors(b"{}\0{", b""), "NUL")
        self.refuse_file(raw_safetensors(b"\xef\xbb\xbf{}", b""), "does not start with '{'")
        self.refuse_file(raw_safetensors("[]", b""), "does not start with '{'")

    def test_nesting(self):
        self.refuse_file(raw_safetensors('{"a":' * 1_000_000, b""), "unknown key 'a'")
        self.refuse_file(raw_safetensors('{"a":' + '{"shape":' * 1_000_000, b""), "where none may be")
        self.refuse_file(raw_safetensors('{"a":' + "[" * 1_000_000, b""), "where none may be")
        self.refuse_file(raw_safetensors('{"a":{"shape":' + "[" * 1_000_000, b""), "where none may be")
        self.refuse_file(raw_safetensors('{"__metadata__":{"a":{"b":1}}}', b""), "where none may be")

    def test_wrong_kinds(self):
        for value in ["1", "-1", "1.5", "null", "true", '"text"', "[]", "[1]"]:
            self.refuse_file(raw_safetensors('{"a": %s}' % value, b""), "where none may be")
        for key, value in [
            ("dtype", 1), ("dtype", None), ("dtype", ["F32"]), ("dtype", {"a": 1}), ("shape", "2"), ("shape", 2),
            ("shape", [-1]), ("shape", [1.0]), ("shape", [1e3]), ("shape", ["1"]), ("shape", [[1]]), ("shape", [None]),
            ("shape", [2**64]), ("data_offsets", 0), ("data_offsets", [-1, 3]), ("data_offsets", {"a": 1}),
        ]:
            with self.subTest(key=key, value=value):
                self.refuse_file(raw_safetensors({"a": {**entry(), key: value}}, DATA), ["where none may be", "'a'"])
        for value in [1, None, True, [1], {"b": "c"}]:
            self.refuse_file(raw_safetensors({"__metadata__": {"a": value}}, b""), "where none may be")

    def test_missing_and_unknown_keys(self):
        for key in ["dtype", "shape", "data_offsets"]:
            broken = entry()
            del broken[key]
            self.refuse_file(raw_safetensors({"a": broken}, DATA), "needs 'dtype', 'shape' and two 'data_offsets'")
        for offsets in [(), (0,), (0, 8, 16)]:
            self.refuse_file(raw_safetensors({"a": entry(offsets=offsets)}, DATA), "two 'data_offsets'")
        self.refuse_file(raw_safetensors({"a": entry(extra=1)}, DATA), "unknown key 'extra'")
        self.refuse_file(raw_safetensors({}, b""), "no tensors")
        self.refuse_file(raw_safetensors({"__metadata__": {"a": "b"}}, b""), "no tensors")

    def test_duplicates(self):
        one = json.dumps(entry())
        self.refuse_file(raw_safetensors('{"a": %s, "a": %s}' % (one, one), DATA), "'a' appears twice")
        self.refuse_file(raw_safetensors('{"a": %s, "\\u0061": %s}' % (one, one), DATA), "'a' appears twice")
        twice = one[:-1] + ', "dtype": "F32"}'
        self.refuse_file(raw_safetensors('{"a": %s}' % twice, DATA), "says one thing twice")
        self.refuse_file(raw_safetensors('{"__metadata__": {"k": "1", "k": "2"}}', b""), "'k' appears twice")
        self.refuse_file(raw_safetensors('{"__metadata__": {}, "__metadata__": {}}', b""), "appears twice")

    def test_types(self):
        self.refuse_file(raw_safetensors({"a": entry("F99")}, DATA), "'F99', which does not exist")
        self.refuse_file(raw_safetensors({"a": entry("f32")}, DATA), "'f32', which does not exist")
        self.refuse_file(raw_safetensors({"a": entry("")}, DATA), "'', which does not exist")
        self.refuse_file(raw_safetensors({"a": entry("I64", (2,))}, DATA), ["I64", "f32, f16 and bf16"])
        self.refuse_file(raw_safetensors({"a": entry("F8_E4M3", (16,))}, DATA), "F8_E4M3")
        self.refuse_file(raw_safetensors({"a": entry("F64", (2,))}, DATA), "F64")
        self.refuse_file(raw_safetensors({"a": entry(), "b": entry("F99", (0,), (16, 16))}, DATA), "'F99'", ":a")

    def test_shape(self):
        for shape in [(2**32, 2**32), (2**63,), (2**64 - 1,), (2**62,), (2**61, 8), (0, 2**32, 2**32)]:
            self.refuse_file(raw_safetensors({"a": entry(shape=shape)}, DATA), "overflows")
        self.refuse_file(raw_safetensors({"a": entry(shape=[1] * 65)}, DATA), "more than 64 dimensions")
        self.refuse_file(raw_safetensors({"a": entry(shape=(2, 3))}, DATA), "needs 24 bytes, its data_offsets give 16")
        self.refuse_file(raw_safetensors({"a": entry(shape=())}, DATA), "needs 4 bytes, its data_offsets give 16")
        self.refuse_file(raw_safetensors({"a": entry("F4", (3,), (0, 2))}, DATA[:2]), "needs 2 bytes")

    def test_offsets(self):
        self.refuse_file(raw_safetensors({"a": entry(offsets=(16, 0))}, DATA), "outside")
        self.refuse_file(raw_safetensors({"a": entry(offsets=(4, 20))}, DATA), "outside")
        self.refuse_file(raw_safetensors({"a": entry(offsets=(2**64 - 16, 2**64 - 1))}, DATA), "outside")
        self.refuse_file(raw_safetensors({"a": entry(offsets=(2**64 - 8, 8))}, DATA), "outside")
        self.refuse_file(raw_safetensors({"a": entry(offsets=(4, 20))}, DATA + bytes(4)), "hole")
        self.refuse_file(raw_safetensors({"a": entry()}, DATA + b"!"), "1 bytes after its tensors")
        self.refuse_file(raw_safetensors({"a": entry(), "b": entry()}, DATA), "overlaps", ":a")
        self.refuse_file(raw_safetensors({"a": entry(), "b": entry(offsets=(8, 24))}, DATA + bytes(8)), "overlaps", ":a")
        self.refuse_file(raw_safetensors({"a": entry(), "b": entry(offsets=(20, 36))}, DATA + bytes(20)), "hole", ":a")
        inside = {"a": entry(), "e": entry(shape=(0,), offsets=(8, 8))}
        self.refuse_file(raw_safetensors(inside, DATA), "overlaps", ":a")

    def test_names(self):
        tensors = {"model.layers.%d.norm.weight" % i: ("F32", (1, 1), [1]) for i in range(9)}
        self.refuse_file(safetensors(tensors), ["9 tensors", "':'"])
        self.refuse_file(safetensors(tensors), ["no tensor", "near names: 'model.layers.3.norm.weight'"],
                         ":model.layers.3.norm.wieght")
        hostile = {"a\n\x1b]0;title\x07\u009b31m": ("F32", (1, 1), [1]), "b": ("F32", (1, 1), [1])}
        self.refuse_file(safetensors(hostile), "\\x0a\\x1b]0;title\\x07\\x9b31m", ":a")
        self.refuse_file(safetensors({"n" * 100_000: ("F32", (1,), [1]), "b": ("F32", (1,), [1])}), "nnn...'", ":nn")
