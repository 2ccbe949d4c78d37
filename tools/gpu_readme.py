#!/usr/bin/env python3
"""Writes a GPU's tables into README.md from its record, so that no figure there is older than the record.

    tools/gpu_readme.py                 rewrite what stands between the markers
    tools/gpu_readme.py --check         only say whether that would change anything: exit code 1 where it would

A table's place is marked by two comments, `<!-- evidence/nvidia-h200.json: speed -->` (or accuracy; of
evidence/torch/nvidia-h200.json: calls, training) and `<!-- end -->`.
"""

import argparse
import json
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import gpu_record  # noqa: E402
import gpu_torch_record  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"<!-- (evidence/\S+\.json): (\w+) -->\n(.*?)<!-- end -->\n", re.DOTALL)
MARKER = re.compile(r"<!-- (?:evidence/.*|end) -->")
NAMES = {"rms_norm": "RMSNorm", "add_rms_norm": "add + RMSNorm", "layer_norm": "LayerNorm", "add_layer_norm": "add + LayerNorm"}
# Those that other libraries were measured at, and for which there are goals.
SHAPES = {
    "rms_norm": [(8192, 128), (131072, 128), (32768, 1024), (1, 4096), (128, 4096), (2048, 4096), (8192, 4096),
                 (128, 8192), (2048, 8192), (128, 18432), (4096, 18432)],
    "add_rms_norm": [(128, 4096), (2048, 4096), (8192, 4096), (2048, 8192)],
    "layer_norm": [(8192, 768), (128, 4096), (2048, 4096), (8192, 4096), (2048, 8192), (1024, 12288)],
}  # fmt: skip


class CannotWrite(Exception):
    """One sentence."""


def speed_table(record):
    found = {
        (result["op"], group["m"], group["n"], result["direction"]): result
        for group in record["speed"]
        if group["dtype"] == "bf16"
        for result in group["results"]
    }

    def row(op, m, n):
        cells = [NAMES[op], f"{m} x {n}"]
        for direction in ["forward", "backward"]:
            if (op, m, n, direction) not in found:
                raise CannotWrite(f"the record has no speed of {op}, {direction}, {m} x {n} in bf16")
            result = found[op, m, n, direction]
            cells += [f"{result['us']:.2f}", f"{result['floor_us']:.2f}", f"**{result['ratio']:.2f}**"]
        return cells

    heading = ["operation", "M x N", "forward, us", "copy", "ratio", "backward, us", "copy", "ratio"]
    return gpu_record.table(heading, [row(op, m, n) for op, shapes in SHAPES.items() for m, n in shapes])


def accuracy_table(record):
    lines = {
        (line["operation"], line["direction"], line["dtype"]): line
        for line in record["accuracy"]
        if line["kind"] == "uniform" and line["rounding"] == "once"
    }

    def row(op, direction):
        for dtype in gpu_record.TYPES:
            if (op, direction, dtype) not in lines:
                raise CannotWrite(f"the record has no accuracy of {op}, {direction}, in {dtype}")
        bf16, f16, f32 = (lines[op, direction, dtype] for dtype in gpu_record.TYPES)
        sums = f32.get("worst_weight_gradient_over_bar")
        return [
            NAMES[op],
            direction,
            gpu_record.percent(bf16["correct_share"]),
            gpu_record.percent(f16["correct_share"]),
            f"{bf16['relative_l2']:.3e} ({bf16['ideal_relative_l2']:.3e})",
            "" if sums is None else f"{sums:.2f}",
        ]

    heading = ["operation", "", "BF16 correctly rounded", "FP16 correctly rounded", "BF16 relative L2 (least possible)"]
    heading += ["FP32 weight gradients, of their bar"]
    outputs = f"{sum(line['elements'] for line in record['accuracy']):,}".replace(",", " ")
    met = "every bar is met" if all(line["passed"] for line in record["accuracy"]) else "NOT every bar is met"
    text = f"`truenorm verify --device cuda` on the {record['device']['name']}, {outputs} outputs; {met}. "
    text += "Tensors of one type, one rounding:\n\n"
    return text + gpu_record.table(heading, [row(op, d) for op in NAMES for d in ["forward", "backward"]])


TABLES = {"speed": speed_table, "accuracy": accuracy_table}
TORCH_TABLES = {"calls": gpu_torch_record.calls_table, "training": gpu_torch_record.training_table}


def rewritten(text, root):
    """The text with every block as the record that it names has it."""

    def block(found):
        path, name, _ = found.groups()
        of_torch = Path(path).parent.name == "torch"
        tables = TORCH_TABLES if of_torch else TABLES
        if name not in tables:
            raise CannotWrite(f"{path}: there is no table {name}; there are {', '.join(tables)}")
        try:
            record = json.loads((Path(root) / path).read_text())
        except (OSError, ValueError) as error:
            raise CannotWrite(f"{path} cannot be read: {error}") from None
        faults = (gpu_torch_record if of_torch else gpu_record).problems(record)
        if faults:
            raise CannotWrite(f"{path} is no record: {faults[0]}")
        return f"<!-- {path}: {name} -->\n\n{tables[name](record)}\n<!-- end -->\n"

    if len(MARKER.findall(text)) != 2 * len(BLOCK.findall(text)):
        raise CannotWrite("a marker has no counterpart")
    return BLOCK.sub(block, text)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args(arguments)
    path = ROOT / "README.md"
    text = path.read_text()
    try:
        new = rewritten(text, ROOT)
    except CannotWrite as reason:
        print(f"gpu_readme: {reason}", file=sys.stderr)
        return 2
    if options.check:
        if new != text:
            print("gpu_readme: README.md is not as its records have it: run tools/gpu_readme.py", file=sys.stderr)
        return int(new != text)
    if new != text:
        path.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
