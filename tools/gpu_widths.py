"""The widths of tools/gpu_check: RMSNorm over the hidden sizes of models and the neighbours of powers of two, in several
types and layouts, beside a copy of the same bytes. Its shapes, its lines in the record, what is wrong with them, and
their tables."""

from gpu_format import NUMBER, want

OP = "rms_norm"
DIRECTIONS = ["forward", "backward"]
HIDDEN = [512, 768, 1024, 1536, 2048, 2560, 3072, 4088, 4095, 4096, 4097, 4104, 5120, 6144, 7168, 8184, 8191, 8192, 8193,
          8200, 12288, 16376, 16383, 16384, 16385, 16392, 18432]  # fmt: skip
MOST_ROWS = 8192
ELEMENTS = 1 << 26  # of a matrix, at most: there are fewer rows where N is above 8192
MATRICES, BYTES = 5, 4  # what `truenorm bench` makes room for, in at most half of the memory; of the widest type
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
    room = int(0.45 * memory_bytes) // (MATRICES * BYTES)
    return [(max(1, min(MOST_ROWS, min(ELEMENTS, room) // n)), n) for n in HIDDEN]


def arguments(variant, shapes):
    """What `truenorm bench` is told beside the device."""
    common = ["--op", OP, "--direction", ",".join(DIRECTIONS), "--rounds", str(ROUNDS)]
    return [*common, "--shape", ",".join(f"{m}x{n}" for m, n in shapes), *VARIANTS[variant]]


def lines_of(variant, bench):
    """The record's lines of a variant, a direction each, of what `truenorm bench --device cuda --json` says."""

    def point(group, direction):
        (result,) = (r for r in group["results"] if (r["op"], r["direction"]) == (OP, direction))
        return {
            "m": group["m"],
            "n": group["n"],
            "us": round(result["median_us"], 3),
            "floor_us": round(result["floor"]["median_us"], 3),
            "ratio": round(result["ratio"], 4),
            "noise": round(group["noise"], 4),
        }

    ((dtype, weight_dtype, row_gap, in_place),) = {
        (group["dtype"], group["weight_dtype"], group["row_gap"], group["in_place"]) for group in bench["groups"]
    }
    call = {"op": OP, "dtype": dtype, "weight_dtype": weight_dtype, "row_gap": row_gap, "in_place": in_place}
    return [
        {"variant": variant, "direction": direction} | call | {"points": [point(group, direction) for group in bench["groups"]]}
        for direction in DIRECTIONS
    ]


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
        for j, point in enumerate(line["points"]):
            want(found, point, f"{where}.points[{j}].", m=int, n=int, us=NUMBER, floor_us=NUMBER, ratio=NUMBER, noise=NUMBER)
    return found


def rows_of(lines, direction):
    """A table of one direction, (heading, rows): a point is its ratio in bold and the two times that it is of."""
    chosen = [line for line in lines if line["direction"] == direction]
    places = sorted({(point["n"], point["m"]) for line in chosen for point in line["points"]})
    by_place = [{(point["n"], point["m"]): point for point in line["points"]} for line in chosen]

    def cell(point):
        return "" if point is None else f"**{point['ratio']:.2f}** ({point['us']:.2f} / {point['floor_us']:.2f})"

    heading = ["N", "M", *(line["variant"] for line in chosen)]
    return heading, [[*place, *(cell(points.get(place)) for points in by_place)] for place in places]
