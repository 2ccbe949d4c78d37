"""The sweep of tools/gpu_check: what share of a copy's bandwidth RMSNorm reaches in BF16, over growing N and growing M,
and where that falls. Its shapes, its lines in the record, what is wrong with them, and their drawing."""

import math
from xml.sax.saxutils import escape

import gpu_points
from gpu_format import NUMBER, want
from gpu_points import DIRECTIONS, OP

DTYPE = "bf16"
ELEMENTS = 1 << 25  # of a matrix over growing N: 64 MB
# Powers of two and what lies halfway; widths of models; neighbours of powers of two, whose rows start anywhere.
HIDDEN = [64, 65, 96, 100, 127, 128, 129, 192, 256, 257, 384, 512, 513, 768, 1000, 1023, 1024, 1025, 1536, 2047, 2048,
          2049, 3072, 4095, 4096, 4097, 4100, 4104, 5120, 6144, 7168, 8191, 8192, 8193, 12288, 16383, 16384, 16385,
          18432, 24576, 32768, 49152, 65536, 65537, 98304, 131072, 196608, 262144]  # fmt: skip
MOST_ROWS = {1024: 1 << 20, 4096: 1 << 16}  # over growing M, by N
QUICK_HIDDEN = [64, 512, 4096, 4097, 32768, 262144]
QUICK_ROWS = [1, 64, 4096]
CLIFF = 0.15  # a fall between neighbours that is deeper should not be


def lines_of_shapes(quick=False):
    """What the sweep goes along: (axis, what stays, its shapes in order)."""
    hidden = QUICK_HIDDEN if quick else HIDDEN
    yield "n", "M = 2^25 / N", [(max(1, ELEMENTS // n), n) for n in hidden]
    for n, most in MOST_ROWS.items():
        rows = QUICK_ROWS if quick else [1 << i for i in range(most.bit_length())]
        yield "m", f"N = {n}", [(m, n) for m in rows]


def shapes(memory_bytes, quick=False):
    """Those to be timed on a device with so much memory, each once."""
    wanted = dict.fromkeys(shape for _, _, line in lines_of_shapes(quick) for shape in line)
    most = gpu_points.most_elements(memory_bytes, 2)
    return [(m, n) for m, n in wanted if m * n <= most]


def arguments(shapes):
    """What `truenorm bench` is told beside the device."""
    return [*gpu_points.arguments(shapes), "--dtype", DTYPE]


def fall_of(points):
    """The deepest fall of the share from one point to the next, as a part of what it was; 0 where it never falls."""

    def fall(a, b):
        part = max(0.0, round(1 - b["share"] / a["share"], 4))
        return {"part": part, "from_m": a["m"], "from_n": a["n"], "to_m": b["m"], "to_n": b["n"]}

    return max((fall(a, b) for a, b in zip(points, points[1:] or points)), key=lambda f: f["part"])


def lines_of(bench):
    """The record's lines, of what `truenorm bench --device cuda --json` says of these shapes or of some."""
    groups = {(group["m"], group["n"]): group for group in bench["groups"]}

    def share(result):
        return result["floor"]["median_us"] / result["median_us"]

    lines = []
    for axis, of, wanted in lines_of_shapes():
        timed = [groups[shape] for shape in wanted if shape in groups]
        for direction in DIRECTIONS if timed else []:
            points = [gpu_points.point_of(group, direction, share=share) for group in timed]
            line = {"axis": axis, "of": of, "op": OP, "dtype": DTYPE, "direction": direction}
            lines.append(line | {"fall": fall_of(points), "points": points})
    return lines


def deepest(lines):
    return max(lines, key=lambda line: line["fall"]["part"])


def fall_text(line):
    """"forward 12.3 % from N = 4096 to 4097", of a line's deepest fall."""
    fall, axis = line["fall"], line["axis"]
    where = "" if axis == "n" else f", {line['of']}"
    if fall["part"] == 0:
        return f"{line['direction']} nowhere{where}"
    ends = f"from {axis.upper()} = {fall['from_' + axis]} to {fall['to_' + axis]}"
    return f"{line['direction']} {100 * fall['part']:.1f} % {ends}{where}"


def problems(lines):
    """What is wrong with a record's lines, as sentences."""
    if not isinstance(lines, list):
        return [f"sweep: got {lines!r}"]
    found = []
    for i, line in enumerate(lines):
        where = f"sweep[{i}]"
        before = len(found)
        if not want(found, line, f"{where}.", axis=str, of=str, op=str, dtype=str, direction=str, fall=dict, points=list):
            continue
        gpu_points.problems(found, line.get("points") or [], where, share=NUMBER)
        if len(found) > before:
            continue
        if line["axis"] not in ("n", "m"):
            found.append(f"{where}.axis: got {line['axis']!r}")
        if not line["points"]:
            found.append(f"{where}.points: got none")
        elif line["fall"] != fall_of(line["points"]):
            found.append(f"{where}.fall: got {line['fall']}, and the points say {fall_of(line['points'])}")
    return found


def rows_of(lines, axis):
    """A table of one axis, (heading, rows): a point is its share in bold and the two times that it is of."""
    chosen = [line for line in lines if line["axis"] == axis]
    heading = [axis.upper()] + [f"{line['direction']}, {line['of']}" for line in chosen]
    return heading, gpu_points.rows_of(chosen, [axis], "share")


# ---- The drawing

WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 980, 330, 60, 40, 50, 45
COLOURS = {"forward": "#1f6fb4", "backward": "#d1600a"}
DASHES = ["", "6 4"]  # of the first and the second line of a colour
TITLES = {
    "n": "Over N, with M = 2^25 / N: the share of a copy's bandwidth",
    "m": "Over M: the share of a copy's bandwidth",
}


def text(x, y, what, size=12, anchor="middle", colour="#333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(what)}</text>'


def rule(x1, y1, x2, y2, colour, dash=""):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'


def panel(lines, axis, top):
    """One of the two: x is N or M on a logarithmic scale, y the share from 0."""
    chosen = [line for line in lines if line["axis"] == axis]
    places = [point[axis] for line in chosen for point in line["points"]]
    shares = [point["share"] for line in chosen for point in line["points"]]
    first, last = (math.log2(f(places, default=1)) for f in (min, max))
    most = max(1.0, math.ceil(10 * max(shares, default=1.0)) / 10)
    bottom, height = top + PANEL - BOTTOM, PANEL - TOP - BOTTOM

    def at(place, share):
        along = (math.log2(place) - first) / max(last - first, 1)
        return LEFT + along * (WIDTH - LEFT - RIGHT), bottom - share / most * height

    out = [text(LEFT, top + 20, TITLES[axis], 15, "start", "#000")]
    for tenth in range(0, round(10 * most) + 1, 2):
        y = at(2**first, tenth / 10)[1]
        out += [rule(LEFT, y, WIDTH - RIGHT, y, "#bbb" if tenth == 10 else "#e4e4e4")]
        out += [text(LEFT - 8, y + 4, f"{tenth / 10:.1f}", anchor="end")]
    for power in range(math.ceil(first), math.floor(last) + 1, 2):
        x = at(2**power, 0)[0]
        out += [rule(x, bottom, x, bottom + 5, "#888"), text(x, bottom + 20, str(2**power))]
    out.append(text(WIDTH - RIGHT, bottom + 38, axis.upper(), anchor="end"))
    seen = {}
    for i, line in enumerate(chosen):
        colour = COLOURS[line["direction"]]
        dash = DASHES[min(seen.setdefault(line["direction"], 0), 1)]
        seen[line["direction"]] += 1
        where = [at(point[axis], point["share"]) for point in line["points"]]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5"{dashes} points="{path}"/>')
        for (x, y), point in zip(where, line["points"]):
            what = f"{point['m']} x {point['n']}, {line['direction']}: {point['share']:.3f}"
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"><title>{what}</title></circle>')
        x, y = LEFT + 190 * i, top + 38
        out += [rule(x, y - 4, x + 26, y - 4, colour, dash)]
        out += [text(x + 32, y, f"{line['direction']}, {line['of']}", anchor="start")]
    return out


def svg(lines, device):
    """Two panels under each other, one circle a point."""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * PANEL + 30}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{2 * PANEL + 30}" fill="#fff"/>',
        text(LEFT, 22, f"RMSNorm, BF16, {device}", 17, "start", "#000"),
        *panel(lines, "n", 30),
        *panel(lines, "m", 30 + PANEL),
        "</svg>",
    ]
    return "\n".join(out) + "\n"
