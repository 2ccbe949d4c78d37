"""The widths of tools/gpu_check: RMSNorm over the hidden sizes of models and the neighbours of powers of two, in several
types and layouts, beside a copy of the same bytes. Its shapes, its lines in the record, what is wrong with them, and
their tables."""

import gpu_points
from gpu_format import NUMBER, want
from gpu_points import DIRECTIONS, OP

HIDDEN = [512, 768, 1024, 1536, 2048, 2560, 3072, 4088, 4095, 4096, 4097, 4104, 5120, 6144, 7168, 8184, 8191, 8192, 8193,
          8200, 12288, 16376, 16383, 16384, 16385, 16392, 18432]  # fmt: skip
MOST_ROWS = 8192
ELEMENTS = 1 << 26  # of a matrix, at most: there are fewer rows where N is above 8192
BYTES = 4  # of an element of the widest type
# A variant's name, and what `truenorm bench` is told.
VARIANTS = {
    "bf16": ["--dtype", "bf16"],
    "f16": ["--dtype", "f16"],
    "f32": ["--dtype", "f32"],
    "bf16, weight in f32": ["--dtype", "bf16", "--weight-dtype", "f32"],
    "bf16, rows 8 further apart": ["--dtype", "bf16", "--row-gap", "8"],
    "bf16, rows 1 further apart": ["--dtype", "bf16", "--row-gap", "1"],
    "bf16, in place": ["--dtype", "bf16", "--in-place"],
}
ROUNDS = 5  # two fewer than `truenorm bench` takes by itself: there are 189 groups


def shapes(memory_bytes):
    """One for each width, of as many rows as a device with so much memory has room for."""
    most = min(ELEMENTS, gpu_points.most_elements(memory_bytes, BYTES))
    return [(max(1, min(MOST_ROWS, most // n)), n) for n in HIDDEN]


def arguments(variant, shapes):
    """What `truenorm bench` is told beside the device."""
    return [*gpu_points.arguments(shapes), "--rounds", str(ROUNDS), *VARIANTS[variant]]


def lines_of(variant, bench):
    """The record's lines of a variant, a direction each, of what `truenorm bench --device cuda --json` says."""

    ((dtype, weight_dtype, row_gap, in_place),) = {
        (group["dtype"], group["weight_dtype"], group["row_gap"], group["in_place"]) for group in bench["groups"]
    }
    call = {"op": OP, "dtype": dtype, "weight_dtype": weight_dtype, "row_gap": row_gap, "in_place": in_place}

    def line(direction):
        points = [gpu_points.point_of(group, direction, ratio=lambda result: result["ratio"]) for group in bench["groups"]]
        return {"variant": variant, "direction": direction} | call | {"points": points}

    return [line(direction) for direction in DIRECTIONS]


def slowest_text(lines):
    """"backward 4.40 at N = 4097, f32", of the highest ratio."""
    line, point = max(((line, point) for line in lines for point in line["points"]), key=lambda pair: pair[1]["ratio"])
    return f"{line['direction']} {point['ratio']:.2f} at N = {point['n']}, {line['variant']}"


def problems(lines):
    """What is wrong with a record's lines, as sentences."""
    if not isinstance(lines, list):
        return [f"widths: got {lines!r}"]
    found = []
    for i, line in enumerate(lines):
        where = f"widths[{i}]"
        before = len(found)
        want(found, line, f"{where}.", variant=str, direction=str, op=str, dtype=str, weight_dtype=str, row_gap=int)
        want(found, line, f"{where}.", in_place=bool, points=list)
        if len(found) > before:
            continue
        if line["direction"] not in DIRECTIONS:
            found.append(f"{where}.direction: got {line['direction']!r}")
        if not line["points"]:
            found.append(f"{where}.points: got none")
        gpu_points.problems(found, line["points"], where, ratio=NUMBER)
    return found


def rows_of(lines, direction):
    """A table of one direction, (heading, rows): a point is its ratio in bold and the two times that it is of."""
    chosen = [line for line in lines if line["direction"] == direction]
    heading = ["N", "M", *(line["variant"] for line in chosen)]
    return heading, gpu_points.rows_of(chosen, ["n", "m"], "ratio")
