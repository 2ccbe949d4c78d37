"""Fine-tunes a Hugging Face causal language model with truenorm's norms: one line more than without.

    python examples/finetune.py                                    a small random Llama learns Python's own manual
    python examples/finetune.py --model PATH --text FILE --out DIR   a model of yours, on a text of yours

Needs truenorm, torch and transformers. Runs on the GPU where PyTorch sees one, else on the CPU.
"""

import argparse
from pathlib import Path

import torch
import transformers
from tqdm import tqdm

from truenorm.integrations.transformers import patch, unpatch


def load(path: str | None):
    """The model, and a function from text to a tensor of tokens: without a path a small model of bytes."""
    if path is None:
        config = transformers.LlamaConfig(
            vocab_size=256,
            hidden_size=256,
            intermediate_size=688,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
        )
        model = transformers.LlamaForCausalLM(config)
        return model, lambda text: torch.tensor(list(text.encode()))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return model, lambda text: tokenizer(text, return_tensors="pt").input_ids[0]


def read(path: Path | None) -> str:
    if path is not None:
        return path.read_text()
    from pydoc_data import topics

    return "\n\n".join(topics.topics[key] for key in sorted(topics.topics))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder or name of a causal language model; default: a small random Llama")
    parser.add_argument("--text", type=Path, help="what to learn; default: the manual that comes with Python")
    parser.add_argument("--out", type=Path, help="where to save the result")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--length", type=int, default=128, help="tokens a sequence")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, encode = load(arguments.model)
    model = model.to(device).train()
    print(patch(model))  # this is all

    tokens = encode(read(arguments.text))
    if len(tokens) <= arguments.length:
        raise SystemExit(f"the text has {len(tokens)} tokens; more than --length {arguments.length} are needed")
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate)
    with tqdm(range(arguments.steps), unit="step") as progress:
        for _ in progress:
            starts = torch.randint(0, len(tokens) - arguments.length, (arguments.batch,))
            batch = torch.stack([tokens[start : start + arguments.length] for start in starts]).to(device)
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            progress.set_postfix(loss=f"{loss.item():.3f}")

    if arguments.out is not None:
        unpatch(model)  # not needed: what is saved is the same with the patch
        model.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
