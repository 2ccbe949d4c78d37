"""What tools/gpu_torch writes down: which sources it covers, whether a record is of them, and its readable form."""

import json
from pathlib import Path

import gpu_record
from gpu_format import NUMBER, want

FORMAT = 1
COVERED = [*gpu_record.COVERED, "bindings/torch", "python/truenorm"]
KINDS = {"full": "forward + gradient", "forward": "forward, without gradients"}


def sources_hash(root):
    return gpu_record.sources_hash(root, COVERED)


def file_name_of(record):
    return gpu_record.file_name(record["name"]) + ".json"


def line_of(calls, kind, name):
    (line,) = (line for line in calls[kind] if line["name"] == name)
    return line


def problems(record):
    """What is wrong with a record's format, as sentences; none where it is well-formed."""
    if not isinstance(record, dict):
        return ["the record is no object"]
    found = []
    want(found, record, "", format=int, date=str, passed=bool, sources_sha256=str, name=str, driver=str, torch=str)
    want(found, record, "", transformers=str, truenorm=str, devices=int, steps=list, calls=dict, training=list)
    if found:
        return found
    for i, step in enumerate(record["steps"]):
        want(found, step, f"steps[{i}].", name=str, outcome=str, seconds=NUMBER, detail=str)
    if record["calls"] and want(found, record["calls"], "calls.", m=int, n=int, dtype=str, missing=dict, full=list,
                                forward=list):  # fmt: skip
        for kind in KINDS:
            for i, line in enumerate(record["calls"].get(kind) or []):
                want(found, line, f"calls.{kind}[{i}].", name=str, us=NUMBER, ratio=NUMBER)
    for i, of in enumerate(record["training"]):
        at = f"training[{i}]."
        numbers = {"without": dict, "with": dict}
        if want(found, of, at, model=str, batch=int, length=int, step_ratio=NUMBER, **numbers):
            for key in ["without", "with"]:
                want(found, of.get(key), f"{at}{key}.", step_ms=NUMBER, peak_mib=NUMBER, last_loss=NUMBER)
    return found


def stale(folder, root):
    """A sentence where a record is of other sources, or says that something failed, or there is none; else None."""
    records = sorted(Path(folder).glob("*.json"))
    if not records:
        return f"{folder} holds no record: run tools/gpu_torch on a machine with a GPU"
    now = sources_hash(root)
    for path in records:
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError):
            return f"{path.name} is no record: it cannot be read as JSON"
        faults = problems(record)
        if faults:
            return f"{path.name} is no record: {faults[0]}"
        if record["sources_sha256"] != now:
            return f"{path.name} is of {record['date']} and other sources: run tools/gpu_torch again"
        if not record["passed"]:
            return f"{path.name} says that not everything passed"
    return None


def calls_table(record):
    calls = record["calls"]
    text = f"Host time a call, {calls['m']} x {calls['n']}, {calls['dtype']}: medians of shuffled rounds, in microseconds, "
    text += "and the ratio to the floor's.\n"
    for kind, title in KINDS.items():
        text += f"\n| {title} | us | ratio |\n| --- | --- | --- |\n"
        text += "".join(f"| {line['name']} | {line['us']:.2f} | **{line['ratio']:.3f}** |\n" for line in calls[kind])
    for name, reason in calls["missing"].items():
        text += f"\nNot there: {name} ({reason}).\n"
    return text


def training_table(record):
    text = "Hugging Face's classes, random weights, BF16, AdamW; the same tokens with and without `patch(model)`, in turns.\n\n"
    text += "| shape of | tokens a step | ms a step, without | with | ratio | peak MiB, without | with | last loss, without "
    text += "| with |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    for of in record["training"]:
        a, b = of["without"], of["with"]
        text += f"| {of['model']} | {of['batch']} x {of['length']} | {a['step_ms']:.2f} | {b['step_ms']:.2f} "
        text += f"| **{of['step_ratio']:.3f}** | {a['peak_mib']:.0f} | {b['peak_mib']:.0f} "
        text += f"| {a['last_loss']:.4f} | {b['last_loss']:.4f} |\n"
    return text


def markdown(record):
    text = f"# {record['name']}: the PyTorch package\n\n{record['date']}, driver {record['driver']}, torch {record['torch']}, "
    text += f"transformers {record['transformers']}, {record['devices']} device(s); truenorm {record['truenorm']}. "
    text += f"Sources {record['sources_sha256'][:16]}.\nWritten by `tools/gpu_torch`, which says how to run it again; do "
    text += f"not edit.\n\n## What ran: {'everything passed' if record['passed'] else 'NOT everything passed'}\n\n"
    text += "| step | outcome | seconds | |\n| --- | --- | --- | --- |\n"
    for step in record["steps"]:
        text += f"| {step['name']} | {step['outcome']} | {step['seconds']:.1f} | {step['detail']} |\n"
    if record["calls"]:
        text += f"\n## Calls\n\n{calls_table(record)}"
    if record["training"]:
        text += f"\n## Training\n\n{training_table(record)}"
    return text
