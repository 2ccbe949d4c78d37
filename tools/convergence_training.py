"""The trainings of tools/convergence.py: two small random models of Hugging Face's classes, on real text, on the CPU."""

import hashlib
import math
import platform
from typing import NamedTuple

STEPS = 250
BATCH, LENGTH = 4, 48  # sequences a step, bytes a sequence
PEAK_RATE, WARM_UP = 3e-3, 20
HELD_OUT = 0.05  # of the text's end, for the final loss
EVALUATIONS = 16  # batches of it

SHAPE = {
    "vocab_size": 256,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "head_dim": 24,
    "max_position_embeddings": LENGTH,
    "use_cache": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
MODELS = {
    "Llama": ("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2}),
    "Gemma 3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {"num_key_value_heads": 1, "sliding_window": 32}),
}


class Run(NamedTuple):
    """One training. `order` seeds the order of the text's pieces; the model's initial weights are always the same."""

    model: str
    dtype: str  # "float32" or "bfloat16"
    patched: bool
    order: int
    repeat: int = 0


class Result(NamedTuple):
    losses: list  # of each step's batch, before the step
    final: float  # the mean over the held-out batches
    bits: str  # a hash of the final parameters
    norms: int  # modules that truenorm computes


def text() -> bytes:
    """Half a megabyte of English prose and code that comes with every Python: its own language reference."""
    from pydoc_data import topics

    return "\n\n".join(topics.topics[key] for key in sorted(topics.topics)).encode()


def describe_text() -> str:
    content = text()
    version = platform.python_version()
    return f"Python {version}'s `pydoc_data.topics`, {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()[:16]}"


def rate(step: int) -> float:
    """The learning rate, as a part of its peak: a linear warm-up, then a cosine to a tenth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.55 + 0.45 * math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP))


def make_model(name: str, dtype: str):
    import torch
    import transformers

    config, model, own = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**SHAPE, **own)).to(getattr(torch, dtype))


def train(run: Run) -> Result:
    """Trains with AdamW, which keeps FP32 parameters beside a BF16 model's; one thread, so that runs can be compared."""
    import torch

    from truenorm.integrations.transformers import patch

    torch.set_num_threads(1)
    model = make_model(run.model, run.dtype)
    norms = len(patch(model).replaced) if run.patched else 0
    content = torch.frombuffer(bytearray(text()), dtype=torch.uint8)
    split = int(len(content) * (1 - HELD_OUT))

    def batch(generator, start, end):
        places = torch.randint(start, end - LENGTH, (BATCH,), generator=generator)
        return torch.stack([content[place : place + LENGTH] for place in places]).long()

    parameters = list(model.parameters())
    masters = [parameter.detach().float().clone() for parameter in parameters]
    optimizer = torch.optim.AdamW(masters, lr=PEAK_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    order = torch.Generator().manual_seed(run.order)
    losses = []
    for _ in range(STEPS):
        tokens = batch(order, 0, split)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        for master, parameter in zip(masters, parameters):
            master.grad, parameter.grad = parameter.grad.float(), None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for master, parameter in zip(masters, parameters):
                parameter.copy_(master)
        losses.append(loss.item())

    held_out = torch.Generator().manual_seed(99)
    with torch.no_grad():
        batches = [batch(held_out, split, len(content)) for _ in range(EVALUATIONS)]
        final = sum(model(input_ids=tokens, labels=tokens).loss.item() for tokens in batches) / EVALUATIONS
    digest = hashlib.sha256()
    for master in masters:
        digest.update(master.numpy().tobytes())
    return Result(losses, final, digest.hexdigest(), norms)
