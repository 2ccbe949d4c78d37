"""truenorm.integrations.transformers on tiny models of each family: exactness, undoing, copies, hooks, compilation."""

import copy
import importlib
import io
import pickle
from collections import Counter

import pytest
import torch

transformers = pytest.importorskip("transformers")

from transformers.models.olmo.modeling_olmo import OlmoLayerNorm  # noqa: E402

import truenorm.integrations.transformers as integration  # noqa: E402
from c_library import relative_l2  # noqa: E402
from transformers_models import (  # noqa: E402
    FAMILIES,
    LAYERS,
    OFFSET_ONE,
    ROUNDED_ONCE,
    ROUNDED_TWICE,
    draws,
    inputs,
    make,
    oracle,
    outputs_and_gradients,
    run,
)
from truenorm.integrations.transformers import patch, patching, unpatch  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These tensors are so small that threads only wait for each other, 50 times as long where the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def logits(model, name="llama"):
    with torch.no_grad():
        return run(model, inputs(name, model))


@pytest.fixture
def calls(monkeypatch):
    """Counts the calls of truenorm's functions by patched modules."""
    counted = Counter()
    for name in ("rms_norm", "layer_norm"):
        function = getattr(integration, name)

        def counting(*args, name=name, function=function, **options):
            counted[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(integration, name, counting)
    return counted


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])
def test_patched_is_as_near_to_fp64_as_unpatched(device, name, dtype, calls):
    model = make(name, dtype, device)
    count = 16 if dtype == torch.bfloat16 else 4  # with fewer, the errors' ratio is noise of 5 % in BF16
    before, gradients_before = draws(name, model, count)
    plain = copy.deepcopy(model)

    report = patch(model)
    assert Counter((entry.class_name, entry.what) for entry in report.replaced) == FAMILIES[name].norms
    assert not report.left and not report.already
    after, gradients_after = draws(name, model, count)

    names = [entry.name for entry in report.replaced]
    offset = float("offset 1" in report.replaced[0].what)
    exact, gradients_exact = draws(name, oracle(plain, names, offset), count)
    assert after.dtype == before.dtype
    assert sum(calls.values()) == count * len(report.replaced), "not every norm went through truenorm"
    slack = 1.05 if dtype == torch.bfloat16 else 1.15  # FP32: other orders of sums, and errors that are noise
    print("Y", name, dtype, relative_l2(after, exact) / relative_l2(before, exact))
    assert relative_l2(after, exact) <= slack * relative_l2(before, exact)

    assert gradients_after.keys() == gradients_before.keys() == gradients_exact.keys()
    for of_norms in (True, False):  # the norms' own gradients are small beside the others': each by themselves
        chosen = [key for key in gradients_exact if (key.rpartition(".")[0] in names) == of_norms]
        ours, theirs, right = (
            torch.cat([gradients[key].double().flatten() for key in chosen])
            for gradients in (gradients_after, gradients_before, gradients_exact)
        )
        print("G", of_norms, relative_l2(ours, right) / relative_l2(theirs, right))
        assert relative_l2(ours, right) <= slack * relative_l2(theirs, right)

    restored = unpatch(model)
    assert len(restored.replaced) == len(report.replaced)
    undone, gradients_undone = draws(name, model, count)
    assert torch.equal(undone, before)
    assert all(torch.equal(gradients_undone[key], gradients_before[key]) for key in gradients_before)
    assert [type(module) for module in model.modules()] == [type(module) for module in plain.modules()]


def test_every_norm_goes_through_truenorm(calls):
    model = make("llama")
    patch(model)
    logits(model)
    assert calls == {"rms_norm": 2 * LAYERS + 1}


def test_report_prints_what_was_done():
    text = str(patch(make("llama")))
    assert text.startswith("replaced      5 x LlamaRMSNorm (RMSNorm, offset 0, llama")
    assert "model.layers.0.input_layernorm, ..." in text
    assert str(patch(torch.nn.Linear(2, 2))) == "no norms found"


def test_patching_twice_is_patching_once():
    model = make("gemma3")
    first, expected = patch(model), None
    expected = logits(model, "gemma3")
    second = patch(model)
    assert not second.replaced and len(second.already) == len(first.replaced)
    assert torch.equal(logits(model, "gemma3"), expected)
    unpatch(model)
    assert not unpatch(model).replaced


def test_one_kind_can_be_left_out():
    bert = make("bert")
    assert not patch(bert, layer_norm=False).replaced
    assert patch(bert, rms_norm=False).replaced


def test_modules_look_as_before():
    model = make("bert")
    plain = copy.deepcopy(model)
    patch(model)
    module, was = model.bert.embeddings.LayerNorm, plain.bert.embeddings.LayerNorm
    assert isinstance(module, torch.nn.LayerNorm)
    assert type(module).__name__ == "LayerNorm" and type(module) is not torch.nn.LayerNorm
    assert repr(module) == repr(was)[:-1] + ", truenorm)"
    assert model.state_dict().keys() == plain.state_dict().keys()
    assert type(torch.nn.LayerNorm(4)) is torch.nn.LayerNorm
    assert torch.nn.LayerNorm.forward is type(was).forward


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
@pytest.mark.parametrize("name", ["llama", "bert"])
def test_copies_are_patched_too(calls, how, name):
    model = make(name)
    patch(model)
    expected = logits(model, name)
    calls.clear()
    if how == "deepcopy":
        other = copy.deepcopy(model)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert torch.equal(logits(other, name), expected)
    assert sum(calls.values()) == len(unpatch(other).replaced) > 0
    assert len(unpatch(model).replaced) > 0


def test_state_goes_to_and_from_an_unpatched_model():
    model, other = make("qwen3"), make("qwen3")
    with torch.no_grad():
        other.model.norm.weight.fill_(3.0)
    patch(model)
    model.load_state_dict(other.state_dict(), strict=True)
    assert torch.equal(model.model.norm.weight, other.model.norm.weight)
    other.load_state_dict(model.state_dict(), strict=True)


def test_hooks_still_fire_and_the_probe_fires_none():
    model = make("llama")
    seen = []
    model.model.norm.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    patch(model)
    assert not seen
    logits(model)
    assert seen == [(2, 12, 64)]


def test_patching_leaves_the_random_state():
    state = torch.get_rng_state()
    model = torch.nn.Sequential(OddRMSNorm(48), torch.nn.RMSNorm(48))
    patch(model)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_patched_model_moves_between_types():
    model = make("llama")
    patch(model)
    plain = make("llama").double()
    assert torch.equal(logits(model.double()), logits(plain))  # FP64 goes through the module's own code
    assert logits(model.bfloat16()).dtype == torch.bfloat16


def test_wide_weights_give_what_the_modules_own_code_gives(device):
    model = make("llama", device=device)
    gemma = make("gemma", device=device)
    patch(model)
    patch(gemma)
    x = torch.randn(3, 64, device=device).bfloat16()
    assert model.model.norm(x).dtype == torch.float32
    assert gemma.model.norm(x).dtype == torch.bfloat16
    mine, theirs = model.model.norm, make("llama", device=device).model.norm
    assert torch.allclose(mine(x), theirs(x), rtol=1e-6)


class Wrapper(torch.nn.Module):
    """As PEFT's ModulesToSaveWrapper: the module itself, and a trained copy of it."""

    def __init__(self, module):
        super().__init__()
        self.original_module = module
        self.modules_to_save = torch.nn.ModuleDict({"default": copy.deepcopy(module)})

    def forward(self, *args):
        return self.modules_to_save["default"](*args)


@pytest.mark.parametrize("patched_first", [False, True])
def test_wrapped_modules_are_patched(calls, patched_first):
    model = make("llama")
    if patched_first:
        patch(model)
    model.model.norm = Wrapper(model.model.norm)
    report = patch(model)
    names = {entry.name for entry in (report.already if patched_first else report.replaced)}
    assert {"model.norm.original_module", "model.norm.modules_to_save.default"} <= names
    logits(model)
    assert calls["rms_norm"] == 5


class OddRMSNorm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.eps = 1e-6


class EpsOutsideRMSNorm(OddRMSNorm):
    def forward(self, x):
        return self.weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.eps)


class GatedRMSNorm(OddRMSNorm):
    def forward(self, x, gate):
        return x * gate


class DetachedRMSNorm(OddRMSNorm):
    def forward(self, x):
        rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * (x.float() * rstd.detach())).type_as(x)


class FirstHalfRMSNorm(OddRMSNorm):
    def forward(self, x):
        rstd = torch.rsqrt(x.float()[..., ::2].pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * (x.float() * rstd)).type_as(x)


class OddLayerNorm(torch.nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.transpose(-1, -2)).transpose(-1, -2)


@pytest.mark.parametrize(
    "module, reason",
    [
        (EpsOutsideRMSNorm(64), "none of the norms"),
        (DetachedRMSNorm(64), "none of the norms"),
        (FirstHalfRMSNorm(64), "none of the norms"),
        (GatedRMSNorm(64), "more than one tensor"),
        (OddLayerNorm(64), "forward of its own"),
        (torch.nn.GroupNorm(2, 64), "more than a weight"),
        (OlmoLayerNorm(64), "what its eps is"),
    ],
)
def test_what_is_not_known_is_left_alone(module, reason):
    cls = type(module)
    report = patch(torch.nn.Sequential(module))
    assert [entry.name for entry in report.left] == ["0"]
    assert reason in report.left[0].what
    assert type(module) is cls


def test_a_forward_replaced_on_the_instance_is_left_alone():
    module = make("llama").model.norm
    module.forward = lambda x: x
    report = patch(module)
    assert "replaced on the instance" in report.left[0].what
    assert "(the model)" in str(report)


def test_a_patched_forward_that_was_wrapped_is_not_half_undone():
    """As accelerate's hooks wrap it: the class would be the module's own again, and the forward still ours."""
    module = make("llama").model.norm
    patch(module)
    own = module.forward
    module.forward = lambda x: own(x)
    report = unpatch(module)
    assert not report.replaced and "wrapped" in report.left[0].what
    del module.forward
    assert unpatch(module).replaced


KNOWN = {
    ROUNDED_TWICE: """deepseek_v4.DeepseekV4 exaone4.Exaone4 falcon_h1.FalconH1 glm4.Glm4 glm4v.Glm4v granite.Granite
        hunyuan_v1_dense.HunYuanDenseV1 internvl.InternVLVision llama4.Llama4Text ministral.Ministral mixtral.Mixtral
        mllama.MllamaText phi3.Phi3 pixtral.Pixtral qwen2.Qwen2 qwen2_5_vl.Qwen2_5_VL qwen2_vl.Qwen2VL
        qwen3_moe.Qwen3Moe qwen3_vl.Qwen3VLText smollm3.SmolLM3""",
    ROUNDED_ONCE: "gemma4.Gemma4 gpt_oss.GptOss olmo3.Olmo3 helium.Helium",
    OFFSET_ONE: "qwen3_next.Qwen3Next qwen3_5.Qwen3_5",
}


@pytest.mark.parametrize("variant, names", [(variant, names.split()) for variant, names in KNOWN.items()])
def test_what_each_class_of_the_families_computes(variant, names):
    found = {}
    for name in names:
        family, prefix = name.split(".")
        code = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        report = patch(getattr(code, f"{prefix}RMSNorm")(32))
        found[name] = (report.replaced or report.left)[0].what
    assert found == dict.fromkeys(names, variant)


@pytest.mark.parametrize("eps", [None, 1e-3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_rms_norm_is_known(device, eps, dtype):
    module = torch.nn.RMSNorm(64, eps, device=device, dtype=dtype)
    torch.nn.init.normal_(module.weight)
    x = (torch.randn(16, 64, device=device) * 0.02).to(dtype)
    expected = module(x)
    assert patch(module).replaced
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    assert torch.allclose(module(x), expected, rtol=tolerance, atol=1e-6)


def test_modules_without_weight_are_known(device):
    from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm

    module = Gemma4RMSNorm(64, with_scale=False).to(device)
    x = torch.randn(5, 64, device=device).bfloat16()
    expected = module(x)
    assert "no weight" in patch(module).replaced[0].what
    assert torch.equal(module(x), expected)


def test_models_made_inside_patching_are_patched(tmp_path):
    make("llama").save_pretrained(tmp_path)

    @patching()
    def load():
        return transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)

    model = load()
    assert len(unpatch(model).replaced) == 5
    assert torch.equal(model.model.norm.weight, make("llama", torch.bfloat16).model.norm.weight)
    with patching(rms_norm=False):
        assert not unpatch(make("llama")).replaced
        assert unpatch(make("bert")).replaced
    assert not unpatch(make("llama")).replaced
    with pytest.raises(ZeroDivisionError), patching():
        _ = 1 / 0
    assert not unpatch(make("llama")).replaced


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_no_graph_break(name):
    model = make(name, num_hidden_layers=1, use_cache=False)
    patch(model)
    batch = inputs(name, model)
    expected, gradients = outputs_and_gradients(model, batch)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    output = compiled(**batch).logits
    assert torch.equal(output, expected)
    model.zero_grad()
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(3))
    (output * weights).sum().backward()
    assert all(torch.equal(model.get_parameter(key).grad, gradients[key]) for key in gradients)
