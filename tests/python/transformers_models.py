"""Tiny models of the families that the tests patch, with weights that no default value hides, and their FP64 oracle."""

import copy
from typing import NamedTuple

import torch
import transformers

LAYERS, HIDDEN, VOCABULARY = 2, 64, 96
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
}
VISION = {"image_size": 32, "patch_size": 8, "num_key_value_heads": None, "head_dim": None, "vocab_size": None}
BERT = {"num_key_value_heads": None, "head_dim": None}

ROUNDED_TWICE = "RMSNorm, offset 0, llama, y as wide as x and weight"
ROUNDED_ONCE = "RMSNorm, offset 0, gemma, y of x's type"
OFFSET_ONE = "RMSNorm, offset 1, gemma, y of x's type"


class Family(NamedTuple):
    config: str
    model: str
    norms: dict  # (class, variant) -> how many of them the model has
    options: dict = {}


FAMILIES = {
    "llama": Family("LlamaConfig", "LlamaForCausalLM", {("LlamaRMSNorm", ROUNDED_TWICE): 5}),
    "mistral": Family("MistralConfig", "MistralForCausalLM", {("MistralRMSNorm", ROUNDED_TWICE): 5}),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", {("Qwen3RMSNorm", ROUNDED_TWICE): 9}),
    "gemma": Family("GemmaConfig", "GemmaForCausalLM", {("GemmaRMSNorm", OFFSET_ONE): 5}),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", {("Gemma2RMSNorm", OFFSET_ONE): 9}),
    "gemma3": Family("Gemma3TextConfig", "Gemma3ForCausalLM", {("Gemma3RMSNorm", OFFSET_ONE): 13}),
    "olmo2": Family("Olmo2Config", "Olmo2ForCausalLM", {("Olmo2RMSNorm", ROUNDED_ONCE): 9}),
    "glm4": Family("Glm4Config", "Glm4ForCausalLM", {("Glm4RMSNorm", ROUNDED_TWICE): 9}, {"pad_token_id": 0}),
    "bert": Family("BertConfig", "BertForMaskedLM", {("LayerNorm", "LayerNorm"): 6}, BERT),
    "siglip": Family("SiglipVisionConfig", "SiglipVisionModel", {("LayerNorm", "LayerNorm"): 6}, VISION),
}


def make(name: str, dtype: torch.dtype = torch.float32, device: str = "cpu", **options):
    """A random model of the family in eval mode; its norms' weights and biases are far from their initial values."""
    family = FAMILIES[name]
    settings = {key: value for key, value in (TEXT | family.options | options).items() if value is not None}
    config = getattr(transformers, family.config)(**settings)
    torch.manual_seed(11)
    model = getattr(transformers, family.model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return model.to(device=device, dtype=dtype)


def inputs(name: str, model, draw: int = 0) -> dict:
    generator = torch.Generator().manual_seed(7 + draw)
    device = model.device
    if FAMILIES[name].options is VISION:
        pixels = torch.randn(2, 3, 32, 32, generator=generator)
        return {"pixel_values": pixels.to(device=device, dtype=model.dtype)}
    return {"input_ids": torch.randint(1, VOCABULARY, (2, 12), generator=generator).to(device)}


def run(model, batch: dict) -> torch.Tensor:
    output = model(**batch)
    return output.logits if "logits" in output else output.last_hidden_state


def outputs_and_gradients(model, batch: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The model's logits (or last hidden state), and each parameter's gradient of a fixed weighted sum of them."""
    batch = {key: value.to(model.dtype) if value.is_floating_point() else value for key, value in batch.items()}
    output = run(model, batch)
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(output.shape, generator=generator).to(device=output.device, dtype=output.dtype)
    model.zero_grad()
    (output * weights).sum().backward()
    return output.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def draws(name: str, model, count: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The same of several inputs, one after the other: one alone is a small sample of roundings."""
    outputs, gradients = zip(*(outputs_and_gradients(model, inputs(name, model, draw)) for draw in range(count)))
    return torch.stack(outputs), {key: torch.stack([each[key] for each in gradients]) for key in gradients[0]}


def oracle(model, names: list[str], offset: float):
    """An FP64 copy of an unpatched model, with its RMSNorms (which go through FP32 in any type) in FP64 too."""
    exact = copy.deepcopy(model).double()
    for name, module in exact.named_modules():
        if name in names and not isinstance(module, torch.nn.LayerNorm):
            eps = module.eps if hasattr(module, "eps") else module.variance_epsilon
            module.forward = lambda x, weight=module.weight, eps=eps: (
                x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * (weight + offset)
            )
    return exact
