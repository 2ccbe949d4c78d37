#!/usr/bin/env python3
"""Golden vectors: what docs/numerics.md defines, computed without any of the C++.

Numbers are Python floats that hold FP32 values. Every operation is computed exactly, with fractions, and rounded once to
nearest even; only the sign of a zero, which a fraction lacks, is decided by IEEE's rules. Slow and plain.

  make_golden.py FILE            writes all cases
  make_golden.py --check FILE    recomputes the small cases and compares them with the file; exit code 1 if any differs
"""

import json
import math
import struct
import sys
from fractions import Fraction

ORDER_VERSION = 1
BLOCK = 256
SMALL = 3000  # elements of a case that --check recomputes; larger ones are kept as hashes
FORMATS = {  # significant bits, exponent of the smallest subnormal, largest finite value
    "f32": (24, -149, (2 - 2.0**-23) * 2.0**127),
    "f16": (11, -24, 65504.0),
    "bf16": (8, -133, (2 - 2.0**-7) * 2.0**127),
}


# ---- Rounding and arithmetic. Values are finite; signs of zero are kept.


def round_exact(value, fmt, zero_sign=1.0):
    """A Fraction rounded to a format, to nearest even; `zero_sign` is the sign that an exact zero has."""
    if value == 0:
        return math.copysign(0.0, zero_sign)
    precision, smallest, largest = FORMATS[fmt]
    numerator, denominator = abs(value.numerator), value.denominator
    exponent = numerator.bit_length() - denominator.bit_length()
    if (numerator << max(0, -exponent)) < (denominator << max(0, exponent)):
        exponent -= 1  # now 2**exponent <= |value| < 2**(exponent + 1)
    unit = max(exponent - precision + 1, smallest)
    units, rest = divmod(numerator << max(0, -unit), denominator << max(0, unit))
    twice = 2 * rest - (denominator << max(0, unit))
    if twice > 0 or (twice == 0 and units % 2 == 1):
        units += 1
    rounded = math.ldexp(units, unit)
    if rounded > largest:
        raise OverflowError("golden vectors are finite")
    return math.copysign(rounded, value.numerator)


def add(a, b):
    return round_exact(Fraction(a) + Fraction(b), "f32", a if math.copysign(1, a) == math.copysign(1, b) else 1.0)


def sub(a, b):
    return add(a, -b)


def mul(a, b):
    return round_exact(Fraction(a) * Fraction(b), "f32", math.copysign(1, a) * math.copysign(1, b))


def div(a, b):
    return round_exact(Fraction(a) / Fraction(b), "f32", math.copysign(1, a) * math.copysign(1, b))


def fma(a, b, c):
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    zero_sign = product_sign if product_sign == math.copysign(1, c) else 1.0
    product = Fraction(a) * Fraction(b)
    value = product + Fraction(c)
    if value == 0 and product != 0:
        zero_sign = 1.0  # exact cancellation
    return round_exact(value, "f32", zero_sign)


def sqrt(a):
    """Nearest to the root: the candidate whose neighbourhood's ends enclose `a` when squared."""
    guess = struct.unpack("<f", struct.pack("<f", math.sqrt(a)))[0]
    bits = struct.unpack("<I", struct.pack("<f", guess))[0]
    for candidate in (bits - 1, bits, bits + 1):
        low, here, high = (Fraction(from_bits("f32", b)) for b in (candidate - 1, candidate, candidate + 1))
        if ((low + here) / 2) ** 2 < Fraction(a) < ((here + high) / 2) ** 2:
            return from_bits("f32", candidate)
    raise ArithmeticError(f"no root of {a}")


def rsqrt(v):
    """1 / sqrt(v) and one Newton step; v is neither zero nor infinite here."""
    r = div(1.0, sqrt(v))
    q = mul(r, v)
    rest = fma(-fma(r, v, -q), r, fma(-q, r, 1.0))
    return fma(mul(0.5, r), rest, r)


def store(fmt, value):
    """An FP32 value rounded to a storage type."""
    return round_exact(Fraction(value), fmt, value)


def to_bits(fmt, value):
    """The bits of a value of the format."""
    if fmt == "f16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits if fmt == "f32" else bits >> 16


def from_bits(fmt, bits):
    if fmt == "f16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits if fmt == "f32" else bits << 16))[0]


# ---- The order of sums


def tree(values):
    """The balanced tree of neighbours; a missing neighbour counts as +0."""
    while len(values) > 1:
        if len(values) % 2:
            values = [*values, 0.0]
        values = [add(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    return values[0]


def dot(a, b):
    blocks = []
    for start in range(0, len(a), BLOCK):
        x, y = a[start : start + BLOCK], b[start : start + BLOCK]
        x, y = x + [0.0] * (BLOCK - len(x)), y + [0.0] * (BLOCK - len(y))
        blocks.append(tree([fma(x[i + 1], y[i + 1], mul(x[i], y[i])) for i in range(0, BLOCK, 2)]))
    return add(tree(blocks), 0.0)


def total(a):
    return dot(a, [1.0] * len(a))


def strips(n):
    for limit, count in ((128, 4096), (1024, 2048), (2048, 256), (4096, 128)):
        if n <= limit:
            return count
    return 64


def strip_sum(m, n, accumulate):
    """Row r is accumulated, in order, into strip r mod strips(n); the strips are summed in a tree."""
    count = strips(n)
    sums = [[0.0] * n for _ in range(min(m, count))]
    for r in range(m):
        sums[r % count] = accumulate(r, sums[r % count])
    return [add(tree([s[c] for s in sums]), 0.0) for c in range(n)]


# ---- The operations


def rstd_of(v):
    """1 / sqrt(v), and one step of Newton's iteration with a residual that is exact to FP32."""
    r = div(1.0, sqrt(v))
    root = mul(r, v)
    root_error = fma(r, v, -root)
    residual = fma(-root_error, r, fma(-root, r, 1.0))
    return fma(mul(0.5, r), residual, r)


def weight_of(case):
    if "weight" not in case:
        return [1.0] * case["n"]
    if case["offset"] == 0:
        return case["weight"][0]
    return [add(w, case["offset"]) for w in case["weight"][0]]


def forward(case, types):
    n, layer = case["n"], case["op"] == "layer_norm"
    out = {name: [] for name in types if name in ("y", "residual_out", "mean", "rstd")}
    w, bias = weight_of(case), case["bias"][0] if "bias" in case else [-0.0] * n
    for r in range(case["m"]):
        s = case["x"][r]
        if "residual" in case:
            s_type = types.get("residual_out", types["residual"])
            s = [store(s_type, add(a, b)) for a, b in zip(s, case["residual"][r])]
        if layer:
            first = div(total(s), float(n))
            d = [sub(v, first) for v in s]
            correction = div(total(d), float(n))
            variance = fma(-correction, correction, div(dot(d, d), float(n)))
            mean = add(first, correction)
            mean_square = max(variance, 0.0)
            centred = [sub(v, mean) for v in s]
        else:
            mean, mean_square, centred = 0.0, div(dot(s, s), float(n)), s
        rstd = rsqrt(add(mean_square, case["eps"]))
        xhat = [mul(v, rstd) for v in centred]
        if case["rounding"] == "llama":
            xhat = [store(types["x"], v) for v in xhat]
        y = [fma(a, b, c) for a, b, c in zip(xhat, w, bias)]
        for name, row in (("y", y), ("residual_out", s)):
            if name in out:
                out[name].append([store(types[name], v) for v in row])
        for name, value in (("mean", mean), ("rstd", rstd)):
            if name in out:
                out[name].append(value)
    for name in ("mean", "rstd"):
        if name in out:
            out[name] = [out[name]]
    return out


def backward(case, types):
    m, n, layer = case["m"], case["n"], case["op"] == "layer_norm"
    w = weight_of(case)
    dy, rstd = case["dy"], case["rstd"][0]
    centred = [[sub(v, case["mean"][0][r]) for v in case["s"][r]] for r in range(m)] if layer else case["s"]
    products = [[mul(a, b) for a, b in zip(dy[r], centred[r])] for r in range(m)]
    out = {}

    gradients = []
    for r in range(m if "dx" in types or "dresidual" in types else 0):
        slope = mul(div(mul(dot(products[r], w), rstd[r]), float(n)), rstd[r])
        shift = div(dot(dy[r], w), float(n)) if layer else None
        row = []
        for i in range(n):
            inner = fma(centred[r][i], -slope, mul(dy[r][i], w[i]))
            if layer:
                inner = sub(inner, shift)
            row.append(fma(rstd[r], inner, case["ds"][r][i] if "ds" in case else -0.0))
        gradients.append(row)
    for name in ("dx", "dresidual"):
        if name in types:
            out[name] = [[store(types[name], v) for v in row] for row in gradients]

    if "dweight" in types:

        def accumulate(r, sums):
            if case["rounding"] == "llama":
                xhat = [store(types["s"], mul(v, rstd[r])) for v in centred[r]]
                return [fma(a, b, c) for a, b, c in zip(dy[r], xhat, sums)]
            return [fma(t, rstd[r], c) for t, c in zip(products[r], sums)]

        out["dweight"] = [[store(types["dweight"], v) for v in strip_sum(m, n, accumulate)]]
    if "dbias" in types:
        sums = strip_sum(m, n, lambda r, sums: [add(c, v) for c, v in zip(sums, dy[r])])
        out["dbias"] = [[store(types["dbias"], v) for v in sums]]
    return out


# ---- Inputs: the same small generator is in tests/golden_test.cpp.


def splitmix64(state):
    mask = (1 << 64) - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def generated(kind, seed, index):
    """Element `index`: an FP32 value, before it is rounded to its tensor's type."""
    r = splitmix64(seed * 0x100000000 + index)
    centred = sum((r >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 2 * 0xFFFF  # near a normal distribution
    if kind == "normal":
        return centred / 65536
    if kind == "positive":
        return 0.5 + abs(centred) / 262144
    if kind == "large_mean":
        return 2000 + (centred >> 4) / 4096
    if kind == "wide":  # magnitudes over 40 powers of two, and zeros of both signs
        if r % 29 == 0:
            return math.copysign(0.0, centred)
        return math.ldexp(centred, r % 41 - 36)
    raise ValueError(kind)


MATRICES = ("x", "residual", "dy", "ds", "s", "y", "residual_out", "dx", "dresidual")


def shape_of(name, m, n):
    if name in MATRICES:
        return m, n
    return 1, m if name in ("mean", "rstd") else n


INPUTS = ("x", "residual", "weight", "bias", "dy", "ds", "s", "mean", "rstd")


def case_of(name, direction, op, m, n, tensors, rounding="once", eps=1e-6, offset=0.0):
    """`tensors`: name -> type, or (type, kind of data) for those inputs that are not 'normal'."""
    types, kinds = {}, {}
    for tensor, how in tensors.items():
        types[tensor], kinds[tensor] = how if isinstance(how, tuple) else (how, "normal")
        if direction == "backward" and tensor == "rstd":
            kinds[tensor] = "positive"
    return {"name": name, "direction": direction, "op": op, "m": m, "n": n, "rounding": rounding, "eps": eps,
            "offset": offset, "types": types, "kinds": kinds}  # fmt: skip


def all_cases():
    b, h, f = "bf16", "f16", "f32"
    wide, big = (f, "wide"), (f, "large_mean")
    cases = [case_of(f"rms_forward_{n}", "forward", "rms_norm", 2, n, {"x": b, "weight": b, "y": b, "rstd": f})
             for n in (1, 5, 32, 255, 256, 257, 600, 1100)]  # fmt: skip
    cases += [case_of(f"layer_backward_{n}", "backward", "layer_norm", 2, n,
                      {"dy": b, "s": b, "mean": f, "rstd": f, "weight": f, "dx": b, "dweight": f, "dbias": b})
              for n in (1, 5, 32, 255, 256, 257, 600, 1100)]  # fmt: skip
    cases += [
        case_of("rms_llama", "forward", "rms_norm", 3, 37, {"x": h, "weight": h, "bias": f, "y": h}, "llama"),
        case_of("rms_gemma", "forward", "rms_norm", 3, 37, {"x": b, "weight": b, "y": b}, offset=1.0),
        case_of("rms_wide", "forward", "rms_norm", 3, 70, {"x": wide, "weight": wide, "y": f, "rstd": f}),
        case_of("rms_residual", "forward", "rms_norm", 2, 130,
                {"x": b, "residual": f, "weight": f, "y": b, "residual_out": f, "rstd": f}),
        case_of("rms_residual_unseen", "forward", "rms_norm", 2, 130, {"x": b, "residual": h, "y": f, "rstd": f}),
        case_of("layer_forward", "forward", "layer_norm", 3, 300,
                {"x": f, "weight": b, "bias": b, "y": f, "mean": f, "rstd": f}, eps=1e-5),
        case_of("layer_large_mean", "forward", "layer_norm", 2, 515, {"x": big, "y": b, "mean": f, "rstd": f}),
        case_of("layer_residual", "forward", "layer_norm", 2, 64,
                {"x": h, "residual": h, "weight": h, "bias": h, "y": h, "residual_out": h, "mean": f, "rstd": f}),
        case_of("rms_backward", "backward", "rms_norm", 5, 75,
                {"dy": b, "ds": b, "s": b, "rstd": f, "weight": b, "dx": b, "dresidual": f, "dweight": b, "dbias": f},
                offset=1.0),
        case_of("rms_backward_llama", "backward", "rms_norm", 3, 75,
                {"dy": h, "s": h, "rstd": f, "weight": h, "dx": h, "dweight": f}, "llama"),
        case_of("rms_backward_wide", "backward", "rms_norm", 3, 75,
                {"dy": wide, "s": wide, "rstd": f, "weight": wide, "dx": f, "dweight": f, "dbias": f}),
        case_of("layer_backward_wide", "backward", "layer_norm", 3, 75,
                {"dy": wide, "s": wide, "mean": f, "rstd": f, "weight": wide, "dx": f, "dweight": f}),
        case_of("no_weight", "backward", "layer_norm", 2, 19, {"dy": f, "ds": f, "s": f, "mean": f, "rstd": f, "dx": f}),
        # More rows than strips: sums of two rows, and of three.
        case_of("strips_4096", "backward", "rms_norm", 8200, 1,
                {"dy": b, "s": b, "rstd": f, "weight": f, "dweight": f, "dbias": f}),
        case_of("strips_2048", "backward", "layer_norm", 2050, 130,
                {"dy": b, "s": b, "mean": f, "rstd": f, "weight": b, "dweight": f, "dbias": f}),
        case_of("strips_256", "backward", "rms_norm", 258, 1030,
                {"dy": b, "s": b, "rstd": f, "weight": b, "dweight": f, "dbias": f}),
        case_of("strips_128", "backward", "layer_norm", 130, 2100,
                {"dy": b, "s": b, "mean": f, "rstd": f, "weight": b, "dx": b, "dweight": f, "dbias": f}),
        case_of("strips_64", "backward", "rms_norm", 129, 4100,
                {"dy": b, "s": b, "rstd": f, "weight": b, "dweight": f, "dbias": f}),
    ]  # fmt: skip
    return cases


# ---- The file


def fnv1a(bits, width):
    """FNV-1a, 64 bits, over the elements' bytes, little-endian."""
    value = 0xCBF29CE484222325
    for element in bits:
        for byte in element.to_bytes(width, "little"):
            value = (value ^ byte) * 0x100000001B3 & ((1 << 64) - 1)
    return value


def written(fmt, rows, small):
    bits = [to_bits(fmt, v) for row in rows for v in row]
    width = 4 if fmt == "f32" else 2
    result = {"type": fmt, "fnv1a": f"{fnv1a(bits, width):016x}"}
    result["bits" if small else "head"] = " ".join(f"{b:0{2 * width}x}" for b in (bits if small else bits[:8]))
    return result


def computed(spec, seed):
    """The case as it stands in the file."""
    m, n = spec["m"], spec["n"]
    values = {key: spec[key] for key in ("op", "m", "n", "rounding", "offset")}
    values["eps"] = store("f32", spec["eps"])
    small = m * n <= 100
    inputs = {}
    for k, (name, fmt) in enumerate(spec["types"].items()):
        if name not in INPUTS or (spec["direction"] == "forward" and name in ("mean", "rstd")):
            continue
        rows, columns = shape_of(name, m, n)
        own = seed * 100 + k
        kind = spec["kinds"][name]
        values[name] = [[store(fmt, generated(kind, own, r * columns + c)) for c in range(columns)] for r in range(rows)]
        inputs[name] = {"kind": kind, "seed": own, **written(fmt, values[name], small)}
    results = (forward if spec["direction"] == "forward" else backward)(values, spec["types"])
    result = {key: spec[key] for key in ("name", "direction", "op", "m", "n", "rounding")}
    result["eps"] = f"{to_bits('f32', values['eps']):08x}"
    result["offset"] = f"{to_bits('f32', spec['offset']):08x}"
    result["inputs"] = inputs
    result["outputs"] = {name: written(spec["types"][name], rows, small) for name, rows in results.items()}
    return result


def main(arguments):
    check = arguments[:1] == ["--check"]
    if len(arguments) != 1 + check:
        sys.exit(__doc__)
    path = arguments[-1]
    cases = [computed(spec, seed) for seed, spec in enumerate(all_cases(), 1) if not check or spec["m"] * spec["n"] <= SMALL]
    if not check:
        lines = ",\n".join(json.dumps(case) for case in cases)
        with open(path, "w", encoding="ascii") as file:
            file.write(f'{{"order_version": {ORDER_VERSION}, "cases": [\n{lines}\n]}}\n')
        return 0
    with open(path, encoding="ascii") as file:
        committed = {case["name"]: case for case in json.load(file)["cases"]}
    different = [case["name"] for case in cases if case != committed.get(case["name"])]
    unknown = set(committed) - {spec["name"] for spec in all_cases()}
    print(f"{len(cases)} cases recomputed; different: {different or 'none'}; not made here: {sorted(unknown) or 'none'}")
    return 1 if different or unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
