#!/usr/bin/env python3
"""What a model's training gains: step time, peak memory and loss of models with Gemma 3 270M's and Llama 3.2 1B's shape
(Hugging Face's classes, random weights, random tokens), as they are and patched by truenorm.integrations.transformers.

    bench/torch_training.py [--device cuda] [--steps 100] [--batch 4] [--length 1024] [--small] [--json FILE]

Both start from the same weights and see the same tokens, with one seed, in BF16 with AdamW. They take turns of ten steps,
so that a machine that slows down slows both. Step time: the median over all steps but the first ten, device waited for.
Peak memory: of a few steps of one model alone on the device. Every model learns to repeat a few batches, so the loss falls.
"""

import argparse
import gc
import json
import statistics
import sys
import time

import torch
import transformers

from truenorm.integrations import transformers as integration

TURN = 10


def configurations(small):
    common = dict(max_position_embeddings=4096)
    gemma = dict(vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4,
                 num_key_value_heads=1, head_dim=256, sliding_window=512, query_pre_attn_scalar=256)
    llama = dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                 num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True)
    if small:
        less = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16)
        gemma, llama = gemma | less, llama | less | dict(num_attention_heads=4, num_key_value_heads=2)
    return {
        "Gemma 3 270M": transformers.Gemma3TextConfig(**gemma, **common),
        "Llama 3.2 1B": transformers.LlamaConfig(**llama, **common),
    }


class Training:
    """A model with its optimizer, and what its steps took."""

    def __init__(self, config, device, patched, batches):
        torch.manual_seed(0)
        with device:  # where weights are made, too: that takes long on a CPU
            self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
        self.patched = integration.patch(self.model) if patched else None
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.batches, self.losses, self.seconds = batches, [], []

    def step(self, synchronize):
        tokens = self.batches[len(self.losses) % len(self.batches)]
        synchronize()
        start = time.perf_counter()
        loss = self.model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        synchronize()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.detach())


def peak_of(make, device, synchronize):
    """MiB that a model alone takes at most in three steps; 0 where there is no device to ask."""
    if device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    training = make()
    for _ in range(3):
        training.step(synchronize)
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def compare(name, config, device, options):
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    torch.manual_seed(1)
    shape = (options.batch, options.length)
    batches = [torch.randint(config.vocab_size, shape).to(device) for _ in range(4)]
    make = lambda patched: Training(config, device, patched, batches)  # noqa: E731
    peaks = [peak_of(lambda patched=patched: make(patched), device, synchronize) for patched in [False, True]]
    trainings = [make(False), make(True)]
    while len(trainings[1].losses) < options.steps:
        for training in trainings:
            for _ in range(TURN):
                training.step(synchronize)
    found = {"model": name, "steps": options.steps, "batch": options.batch, "length": options.length}
    found["parameters"] = sum(p.numel() for p in trainings[0].model.parameters())
    found["norms"] = sum(1 for m in trainings[0].model.modules() if type(m).__name__.endswith("Norm"))
    for key, training, peak in zip(["without", "with"], trainings, peaks):
        losses = [float(loss) for loss in training.losses]
        seconds = statistics.median(training.seconds[TURN:] or training.seconds)
        found[key] = {"step_ms": round(1e3 * seconds, 3), "peak_mib": peak, "first_loss": round(losses[0], 4),
                      "last_loss": round(losses[-1], 4)}  # fmt: skip
    found["step_ratio"] = round(found["with"]["step_ms"] / found["without"]["step_ms"], 4)
    return found


def text(found):
    lines = [f"{found['model']}'s shape, {found['parameters'] / 1e6:.0f} M parameters, {found['norms']} norms, "
             f"{found['batch']} x {found['length']} tokens, {found['steps']} steps"]  # fmt: skip
    for key in ["without", "with"]:
        of = found[key]
        lines.append(f"  {key:<8} {of['step_ms']:8.2f} ms a step, {of['peak_mib']:8.1f} MiB, "
                     f"loss {of['first_loss']:.4f} to {of['last_loss']:.4f}")  # fmt: skip
    return "\n".join([*lines, f"  ratio of the step times: {found['step_ratio']:.4f}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--small", action="store_true", help="tiny models, to try the program")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    found = []
    for name, config in configurations(options.small).items():
        found.append(compare(name, config, torch.device(options.device), options))
        print(text(found[-1]), flush=True)
        gc.collect()
        if options.device.startswith("cuda"):
            torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
