"""Reads and writes .npy and .safetensors with the standard library alone, well-formed or not."""

import ast
import json
import struct

SIZES = {"F64": 8, "I64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "BOOL": 1}


def encode(values, dtype):
    """Little-endian bytes of `values`; BF16 by truncation, so give it values that it holds exactly."""
    if dtype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack("<%d%s" % (len(values), {"F32": "f", "F16": "e", "F64": "d", "I64": "q"}[dtype]), *values)


def decode(data, dtype):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack("<%d%s" % (len(data) // SIZES[dtype], {"F32": "f", "F16": "e"}[dtype]), data))


def raw_npy(header, data, version=(1, 0)):
    """A .npy with any header text."""
    header = header.encode("utf-8") if isinstance(header, str) else header
    length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + length + header + data


def npy(shape, values, descr="<f4", version=(1, 0)):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (descr, tuple(shape))
    data = encode(values, {"<f4": "F32", "<f2": "F16", "<f8": "F64", "<i8": "I64"}[descr])
    return raw_npy(header + "\n", data, version)


def parse_npy(path):
    """(descr, shape, values) of a version 1.0 file."""
    with open(path, "rb") as file:
        blob = file.read()
    assert blob[:8] == b"\x93NUMPY\x01\x00"
    end = 10 + struct.unpack("<H", blob[8:10])[0]
    assert end % 64 == 0 and blob[end - 1 : end] == b"\n"
    header = ast.literal_eval(blob[10:end].decode("ascii"))
    assert header["fortran_order"] is False
    return header["descr"], header["shape"], decode(blob[end:], {"<f4": "F32", "<f2": "F16"}[header["descr"]])


def raw_safetensors(header, data, length=None):
    """A .safetensors with any header: text, bytes, or something for json.dumps."""
    if not isinstance(header, (str, bytes)):
        header = json.dumps(header)
    header = header.encode("utf-8") if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def safetensors(tensors, metadata=None):
    """`tensors` maps a name to (dtype, shape, values)."""
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (dtype, shape, values) in tensors.items():
        encoded = encode(values, dtype)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(encoded)]}
        data += encoded
    return raw_safetensors(header, data)


def parse_safetensors(path):
    """{name: (dtype, shape, values)}; checks what the format asks of a writer."""
    with open(path, "rb") as file:
        blob = file.read()
    end = 8 + struct.unpack("<Q", blob[:8])[0]
    assert end % 8 == 0
    header = json.loads(blob[8:end])
    out = {}
    covered = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        assert begin == covered and begin % SIZES[entry["dtype"]] == 0
        covered = stop
        out[name] = (entry["dtype"], tuple(entry["shape"]), decode(blob[end + begin : end + stop], entry["dtype"]))
    assert covered == len(blob) - end
    return out
