"""What tools/gpu_check writes down: the record's format, the hash of the sources it covers, and its readable form."""

import hashlib
import json
import math
import re
from pathlib import Path

import gpu_points
import gpu_sweep
import gpu_widths
from gpu_format import NUMBER, want

FORMAT = 1
COVERED = ["src/api", "src/cuda", "src/spec"]
OUTCOMES = ["passed", "failed", "not run"]
TYPES = ["bf16", "f16", "f32"]
DIRECTIONS = ["forward", "backward", "frozen"]


def sources_hash(root, covered=COVERED):
    """sha256 over the covered files in the order of their paths: path, size and content of each. Compiled Python is no
    source."""
    root = Path(root)
    files = [file for folder in covered for file in (root / folder).rglob("*") if file.is_file() and file.suffix != ".pyc"]
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(root).as_posix(), file) for file in files):
        content = file.read_bytes()
        digest.update(b"%s\0%d\0" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()


def file_name(device):
    """"NVIDIA H200" -> "nvidia-h200"."""
    return re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")


def drawing_name(record):
    return file_name(record["device"]["name"]) + "-sweep.svg"


def problems(record):
    """What is wrong with a record's format, as sentences; none where it is well-formed."""
    if not isinstance(record, dict):
        return ["the record is no object"]
    found = []
    want(found, record, "", format=int, date=str, quick=bool, passed=bool, sources_sha256=str, toolkit=str, version=str)
    want(found, record, "", order_version=int, device=dict, steps=list, accuracy=list, speed=list)
    if found:
        return found
    if record["format"] != FORMAT:
        found.append(f"format: got {record['format']}, and {FORMAT} is known")
    if not re.fullmatch("[0-9a-f]{64}", record["sources_sha256"]):
        found.append(f"sources_sha256: got {record['sources_sha256']!r}")
    want(found, record["device"], "device.", name=str, compute_capability=str, driver=str)
    outcomes = []
    for i, step in enumerate(record["steps"]):
        if not want(found, step, f"steps[{i}].", name=str, outcome=str, seconds=NUMBER, detail=str):
            continue
        outcomes.append(step.get("outcome"))
        if outcomes[-1] not in OUTCOMES:
            found.append(f"steps[{i}].outcome: got {outcomes[-1]!r}")
    if record["passed"] != ("failed" not in outcomes):
        found.append("passed: does not agree with the steps")
    for i, line in enumerate(record["accuracy"]):
        want(found, line, f"accuracy[{i}].", operation=str, rounding=str, direction=str, kind=str, dtype=str, passed=bool)
        want(found, line, f"accuracy[{i}].", elements=int, correct_share=NUMBER, worst_ulp=int, relative_l2=NUMBER)
    for i, group in enumerate(record["speed"]):
        if not want(found, group, f"speed[{i}].", m=int, n=int, dtype=str, noise=NUMBER, results=list):
            continue
        for j, result in enumerate(group.get("results") or []):
            want(found, result, f"speed[{i}].results[{j}].", op=str, direction=str, bytes=int)
            numbers = ["us", "min_us", "max_us", "floor_us", "ratio", "cold_us", "cold_floor_us", "cold_ratio"]
            want(found, result, f"speed[{i}].results[{j}].", **{key: NUMBER for key in numbers})
    # There are records from before there were these.
    return found + gpu_sweep.problems(record.get("sweep", [])) + gpu_widths.problems(record.get("widths", []))


def accuracy_of(verify):
    """The lines of `truenorm verify --json`, as far as a record keeps them."""
    keys = ["operation", "rounding", "direction", "kind", "dtype", "elements", "correct_share", "worst_ulp"]
    keys += ["worst_fp32_units", "relative_l2", "ideal_relative_l2", "worst_weight_gradient_over_bar", "passed"]
    return [{key: line[key] for key in keys if key in line} for line in verify["lines"]]


def speed_of(bench):
    """The groups of `truenorm bench --device cuda --json`, as far as a record keeps them."""

    def kept(result):
        return {
            "op": result["op"],
            "direction": result["direction"],
            "us": round(result["median_us"], 3),
            "min_us": round(result["min_us"], 3),
            "max_us": round(result["max_us"], 3),
            "floor_us": round(result["floor"]["median_us"], 3),
            "ratio": round(result["ratio"], 4),
            "cold_us": round(result["cold"]["median_us"], 3),
            "cold_floor_us": round(result["cold_floor"]["median_us"], 3),
            "cold_ratio": round(result["cold_ratio"], 4),
            "bytes": result["bytes"],
            "workspace_bytes": result["workspace_bytes"],
        }

    return [
        {key: group[key] for key in ["m", "n", "dtype"]}
        | {"noise": round(group["noise"], 4), "results": [kept(result) for result in group["results"]]}
        for group in bench["groups"]
    ]


def dump(value, indent=0):
    """JSON with one line for whatever holds plain values alone, so that a difference of two records can be read."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(item, (dict, list)) for item in inner):
        return json.dumps(value, ensure_ascii=False)
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {dump(item, indent + 1)}" for key, item in value.items()]
    else:
        items = [dump(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{pad}" + f",\n{pad}".join(items) + f"\n{' ' * indent}{closing}"


def table(heading, rows):
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def percent(share):
    """Rounded down, so that nothing but a perfect share reads 100."""
    return f"{math.floor(share * 1e6) / 1e4:.4f} %"


def steps_text(record):
    rows = [[step["name"], step["outcome"], f"{step['seconds']:.0f} s", step["detail"]] for step in record["steps"]]
    return table(["step", "outcome", "time", "what it says"], rows)


def accuracy_text(record):
    def row(line):
        narrow = line["dtype"] != "f32"
        sums = line.get("worst_weight_gradient_over_bar")
        return [
            line["operation"],
            line["rounding"],
            line["direction"],
            line["dtype"] + ("" if line["kind"] == "uniform" else f" ({line['kind']})"),
            f"{line['elements']:,}".replace(",", " "),
            percent(line["correct_share"]),
            line["worst_ulp"] if narrow else "",
            f"{line['relative_l2']:.3e} ({line['ideal_relative_l2']:.3e})",
            "" if sums is None else f"{sums:.2f}",
            "" if line["passed"] else "FAILED",
        ]

    heading = ["operation", "rounding", "", "type", "outputs", "correctly rounded", "worst ulp"]
    heading += ["relative L2 (least possible)", "dW of its bar", ""]
    return table(heading, [row(line) for line in record["accuracy"]])


def speed_text(record, dtype):
    """One row for each operation and shape: a ratio, and the times that it is of."""
    found = {}
    for group in record["speed"]:
        if group["dtype"] != dtype:
            continue
        for result in group["results"]:
            found.setdefault((result["op"], group["m"], group["n"]), {})[result["direction"]] = result

    def cells(results):
        for direction in DIRECTIONS:
            result = results.get(direction)
            if result is None:
                yield from ("", "")
            else:
                yield gpu_points.cell(result, "ratio")
                yield f"{result['cold_ratio']:.2f} ({result['cold_us']:.1f})"

    order = list(dict.fromkeys(op for op, _, _ in found))
    rows = sorted(found.items(), key=lambda item: order.index(item[0][0]))
    heading = ["operation", "M x N"]
    for direction in DIRECTIONS:
        heading += [f"{direction} (us / copy)", "cold (us)"]
    return table(heading, [[op, f"{m} x {n}", *cells(results)] for (op, m, n), results in rows])


def sweep_text(record):
    text = "RMSNorm in bf16 over growing N and growing M: the share of a copy's bandwidth that is reached (the copy's "
    text += "time over ours), in bold, and the two times\nin microseconds, ours first. Its deepest falls from one point "
    text += "to the next:\n\n"
    text += "".join(f"* over {line['axis'].upper()}: {gpu_sweep.fall_text(line)}\n" for line in record["sweep"])
    deepest = gpu_sweep.deepest(record["sweep"])
    deep = deepest["fall"]["part"] > gpu_sweep.CLIFF
    text += f"\nThe deepest of all: {gpu_sweep.fall_text(deepest)}{'; that is a cliff' if deep else ''}.\n"
    text += f"\n![The same as a drawing]({drawing_name(record)})\n"
    for axis in ["n", "m"]:
        text += "\n" + table(*gpu_sweep.rows_of(record["sweep"], axis))
    return text


def widths_text(record):
    text = "RMSNorm over the hidden sizes of models, and sizes beside powers of two. The ratio of our time to that of a "
    text += "copy of the same bytes, in bold, and the two\ntimes in microseconds, ours first. "
    text += '"further apart": rows of every matrix lie N + so many elements apart; what is between them is not moved, and '
    text += 'not\ncounted. "in place": y is written over x, dx over dy; the copy beside it writes elsewhere. Furthest from the '
    text += "copy: "
    text += f"{gpu_widths.slowest_text(record['widths'])}.\n"
    for direction in gpu_widths.DIRECTIONS:
        text += f"\n### {direction}, by N\n\n" + table(*gpu_widths.rows_of(record["widths"], direction))
    return text


def markdown(record):
    device = record["device"]
    text = f"# {device['name']}\n\n"
    text += f"{record['date']}, driver {device['driver']}, CUDA {record['toolkit']}, compute capability "
    text += f"{device['compute_capability']}; truenorm {record['version']}, order version {record['order_version']}"
    text += f"{', a quick run' if record['quick'] else ''}. Sources {record['sources_sha256'][:16]}.\n"
    text += "Written by `tools/gpu_check`, which says how to run it again; do not edit.\n\n"
    text += f"## What ran: {'everything passed' if record['passed'] else 'NOT everything passed'}\n\n"
    text += steps_text(record)
    if record["speed"]:
        noise = max(abs(group["noise"] - 1) for group in record["speed"])
        text += "\n## Speed\n\nThe ratio of our time to that of the fastest plain copy of the same bytes, in bold, and "
        text += "the two times in microseconds: medians of shuffled rounds of\nCUDA-graph replay, inputs from memory. "
        text += '"cold": single launches with a cold L2 cache, the same way. "frozen": backward without the weight\'s '
        text += f"gradient.\nThe same call entered twice differed by up to {100 * noise:.1f} %.\n"
        for dtype in TYPES:
            if any(group["dtype"] == dtype for group in record["speed"]):
                text += f"\n### {dtype}\n\n{speed_text(record, dtype)}"
    if record.get("sweep"):
        text += f"\n## Sweep\n\n{sweep_text(record)}"
    if record.get("widths"):
        text += f"\n## Widths\n\n{widths_text(record)}"
    if record["accuracy"]:
        text += "\n## Accuracy\n\n`truenorm verify --device cuda`, against the FP64 oracle.\n\n" + accuracy_text(record)
    return text
