"""What tools/gpu_torch writes down: which sources it covers, whether a record is of them, and its readable form."""

import json
from pathlib import Path

import gpu_record

FORMAT = 1
COVERED = [*gpu_record.COVERED, "bindings/torch", "python/truenorm"]


def sources_hash(root):
    return gpu_record.sources_hash(root, COVERED)


def file_name_of(record):
    return gpu_record.file_name(record["name"]) + ".json"


def line_of(calls, kind, name):
    (line,) = (line for line in calls[kind] if line["name"] == name)
    return line


def stale(folder, root):
    """A sentence where a record is of other sources, or says that something failed, or there is none; else None."""
    records = sorted(Path(folder).glob("*.json"))
    if not records:
        return f"{folder} holds no record: run tools/gpu_torch on a machine with a GPU"
    now = sources_hash(root)
    for path in records:
        try:
            record = json.loads(path.read_text())
            found, passed, date = record["sources_sha256"], record["passed"], record["date"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return f"{path.name} is no record"
        if found != now:
            return f"{path.name} is of {date} and other sources: run tools/gpu_torch again"
        if passed is not True:
            return f"{path.name} says that not everything passed"
    return None


def calls_text(calls):
    text = f"Host time a call, {calls['m']} x {calls['n']}, {calls['dtype']}: medians of shuffled rounds, in microseconds, "
    text += "and the ratio to the floor's.\n"
    for kind, title in [("full", "forward + gradient"), ("forward", "forward, without gradients")]:
        text += f"\n| {title} | us | ratio |\n| --- | --- | --- |\n"
        text += "".join(f"| {line['name']} | {line['us']:.2f} | **{line['ratio']:.3f}** |\n" for line in calls[kind])
    for name, reason in calls["missing"].items():
        text += f"\nNot there: {name} ({reason}).\n"
    return text


def training_text(training):
    text = "Hugging Face's classes, random weights, BF16, AdamW; the same tokens with and without "
    text += "`truenorm.integrations.transformers.patch`, in turns.\n\n"
    text += "| shape of | tokens a step | ms a step, without | with | ratio | peak MiB, without | with | last loss, without "
    text += "| with |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    for of in training:
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
        text += f"\n## Calls\n\n{calls_text(record['calls'])}"
    if record["training"]:
        text += f"\n## Training\n\n{training_text(record['training'])}"
    return text
