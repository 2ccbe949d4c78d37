"""Points: a shape's time beside that of a copy of the same bytes. What the sweep and the widths of tools/gpu_check ask
for, keep in the record, check there and put into tables."""

from gpu_format import NUMBER, want

OP = "rms_norm"
DIRECTIONS = ["forward", "backward"]
MATRICES = 5  # that `truenorm bench` makes room for, in at most half of the memory


def most_elements(memory_bytes, element_bytes):
    """Of a matrix, on a device with so much memory."""
    return int(0.45 * memory_bytes) // (MATRICES * element_bytes)


def arguments(shapes):
    """What `truenorm bench` is told of them, beside types and layouts."""
    return ["--op", OP, "--direction", ",".join(DIRECTIONS), "--shape", ",".join(f"{m}x{n}" for m, n in shapes)]


def point_of(group, direction, **figures):
    """What a record keeps of a group that `truenorm bench --json` says; `figures`: functions of our time's result."""
    (result,) = (r for r in group["results"] if (r["op"], r["direction"]) == (OP, direction))
    return {
        "m": group["m"],
        "n": group["n"],
        "us": round(result["median_us"], 3),
        "floor_us": round(result["floor"]["median_us"], 3),
        **{key: round(figure(result), 4) for key, figure in figures.items()},
        "noise": round(group["noise"], 4),
    }


def problems(found, points, where, **figures):
    """Adds a sentence to `found` for each value that a line's points lack, or have of another kind."""
    for i, point in enumerate(points):
        want(found, point, f"{where}.points[{i}].", m=int, n=int, us=NUMBER, floor_us=NUMBER, **figures, noise=NUMBER)


def cell(point, figure):
    """A figure in bold and the two times that it is of."""
    return f"**{point[figure]:.2f}** ({point['us']:.2f} / {point['floor_us']:.2f})"


def rows_of(lines, axes, figure):
    """A table's rows, one for each place along the axes: the place, and each line's cell there, if it has one."""
    by_place = [{tuple(point[axis] for axis in axes): point for point in line["points"]} for line in lines]
    places = sorted({place for points in by_place for place in points})
    return [[*place, *(cell(points[place], figure) if place in points else "" for points in by_place)] for place in places]
