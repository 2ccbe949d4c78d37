"""Whole patched Hugging Face models through torch.compile's inductor, forward and backward, with a changing batch."""

import copy
import re
import shutil

import pytest
import torch
from torch._inductor.utils import run_fw_bw_and_get_code

import transformers_models
from c_library import relative_l2, same_bits
from truenorm.integrations.transformers import patch

# On a CPU the time goes into g++: scalar loops, not optimised, take it a tenth.
SCALAR = {"aot_inductor.debug_compile": True, "cpp.vec_isa_ok": False, "compile_threads": 1}
SCALAR["cpp_cache_precompile_headers"] = shutil.which("openssl") is not None  # what inductor hashes headers with
# No loops at all: the graph is inductor's, its memory too, and each operation PyTorch's own.
NO_LOOPS = {"fallback_by_default": True, "compile_threads": 1}
MARGIN = 1.3  # fused or not, roundings are others

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="NO g++, which inductor needs: not tested")


def tokens(batch, device):
    generator = torch.Generator().manual_seed(batch)
    return {"input_ids": torch.randint(1, transformers_models.VOCABULARY, (batch, 12), generator=generator).to(device)}


def error(results, exact):
    """Relative L2, of the output or of all gradients together."""
    return relative_l2(*(torch.cat([of[name].double().flatten() for name in exact]) for of in (results, exact)))


@pytest.mark.parametrize(
    "name, dtype, offset, options",
    [("llama", torch.float32, 0.0, SCALAR), ("gemma3", torch.bfloat16, 1.0, NO_LOOPS)],
    ids=["llama-fp32", "gemma3-bf16"],
)
def test_a_whole_model(name, dtype, offset, options, device):
    model = transformers_models.make(name, dtype, device, num_hidden_layers=1, attn_implementation="sdpa")
    model.config.use_cache = False
    norms = [key for key, module in model.named_modules() if type(module).__name__.endswith("RMSNorm")]
    exact = transformers_models.oracle(model, norms, offset)
    assert len(patch(model).replaced) == len(norms) >= 3
    compiled, seen = copy.deepcopy(model), []
    for key in norms:
        compiled.get_submodule(key).register_forward_hook(lambda module, args, y: seen.append((module, args[0], y)))

    torch._dynamo.reset()
    compiled.compile(fullgraph=True)
    first = tokens(2, device)
    torch._dynamo.mark_dynamic(first["input_ids"], 0)
    with torch._inductor.config.patch({"force_disable_caches": True} | (options if device == "cpu" else {})):
        _, code = run_fw_bw_and_get_code(lambda: compiled(**first).logits)
    calls = [re.findall(r"torch\.ops\.truenorm\.(\w+)\.default\(", part) for part in code]
    assert calls == [["rms_norm_forward"] * len(norms), ["rms_norm_backward"] * len(norms)]
    assert "rsqrt" not in "".join(code)  # of a norm that had stayed

    for batch in (2, 5):
        seen.clear()
        given = tokens(batch, device)
        with torch.compiler.set_stance("fail_on_recompile"):
            y, gradients = transformers_models.outputs_and_gradients(compiled, given)
        assert len(seen) == len(norms)
        for module, x, normalised in seen:
            assert same_bits(normalised, type(module).forward(module, x))
        own_y, own_gradients = transformers_models.outputs_and_gradients(model, given)
        exact_y, exact_gradients = transformers_models.outputs_and_gradients(exact, given)
        assert error({"y": y}, {"y": exact_y}) <= MARGIN * error({"y": own_y}, {"y": exact_y})
        assert error(gradients, exact_gradients) <= MARGIN * error(own_gradients, exact_gradients)
        if device == "cpu" and options is NO_LOOPS:
            assert same_bits(y, own_y)
