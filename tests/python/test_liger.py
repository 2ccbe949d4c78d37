"""truenorm.integrations.liger: their signatures, safe in-place, and registration inside the real liger_kernel."""

import copy
import inspect
import sys
import types

import pytest
import torch

import truenorm
from truenorm.integrations import liger

SIZES = (3, 5, 64)


def tensors(device, dtype=torch.bfloat16, count=2):
    values = [torch.randn(SIZES, device=device).to(dtype).requires_grad_() for _ in range(count)]
    return *values, torch.randn(64, device=device).to(dtype).requires_grad_()


@pytest.mark.parametrize("mode", ["llama", "gemma", "none", 0, 1, -1])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_function(device, mode, offset):
    x, weight = tensors(device, count=1)
    ours = {-1: "none", 0: "llama", 1: "gemma"}.get(mode, mode)
    expected = truenorm.rms_norm(x, weight, eps=1e-5, offset=offset, casting_mode=ours)
    assert torch.equal(liger.LigerRMSNormFunction.apply(x, weight, 1e-5, offset, mode, True, None), expected)
    assert torch.equal(liger.liger_rms_norm(x, weight, 1e-5, offset=offset, casting_mode=mode), expected)


def test_fused_add_and_layer_norm_functions(device):
    x, residual, weight = tensors(device)
    y, s = liger.LigerFusedAddRMSNormFunction.apply(x, residual.float(), weight, 1e-6, 0.0, "llama", True)
    assert s.dtype == y.dtype == torch.bfloat16
    assert torch.equal(s, (x.float() + residual.float()).bfloat16())
    assert torch.equal(y, truenorm.rms_norm(s, weight))
    expected = truenorm.layer_norm(x, (64,), weight, weight, 1e-6)
    assert torch.equal(liger.LigerLayerNormFunction.apply(x, weight, weight, 1e-6), expected)


def test_an_unknown_casting_mode_is_named(device):
    x, weight = tensors(device, count=1)
    with pytest.raises(ValueError, match="casting_mode: got 'lama'"):
        liger.liger_rms_norm(x, weight, 1e-6, casting_mode="lama")
    with pytest.raises(TypeError, match=r"casting_mode: got \[1\], a list; needs 'llama', 'gemma' or 'none'"):
        liger.liger_rms_norm(x, weight, 1e-6, casting_mode=[1])


@pytest.mark.parametrize("in_place", [True, False])
def test_in_place_never_changes_a_shared_gradient(device, in_place):
    """dY is seen by the residual branch, by a hook that keeps it, and by a second backward through a kept graph."""
    x, weight = tensors(device, torch.float32, 1)
    kept = []
    y = liger.liger_rms_norm(x, weight, 1e-6, in_place=in_place)
    y.register_hook(lambda gradient: kept.append((gradient, gradient.clone())))
    output = x + y
    seed = torch.randn_like(output)
    seed_before = seed.clone()
    first = torch.autograd.grad(output, (x, weight), seed, retain_graph=True)
    second = torch.autograd.grad(output, (x, weight), seed)
    assert torch.equal(seed, seed_before)
    assert all(torch.equal(gradient, was) for gradient, was in kept) and len(kept) == 2
    assert all(torch.equal(a, b) for a, b in zip(first, second))

    exact_x = x.detach().double().requires_grad_()
    rstd = (exact_x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    exact = torch.autograd.grad(exact_x + exact_x * rstd * weight.double(), exact_x, seed.double())[0]
    assert torch.allclose(first[0].double(), exact, rtol=1e-5, atol=1e-5)


MODULES = {
    "LigerRMSNorm": (0.0, "llama", 1.0),
    "LigerRMSNormForGemma": (1.0, "gemma", 0.0),
    "LigerRMSNormForGemma2": (1.0, "gemma", 0.0),
    "LigerRMSNormForGemma3": (1.0, "gemma", 0.0),
    "LigerRMSNormForGemma4": (0.0, "gemma", 1.0),
    "LigerRMSNormForOlmo2": (0.0, "llama", 1.0),
    "LigerRMSNormForGlm4": (0.0, "llama", 1.0),
    "LigerRMSNormForQwen3Next": (1.0, "gemma", 0.0),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(device, name):
    offset, mode, initial = MODULES[name]
    module = getattr(liger, name)(64, eps=1e-5).to(device)
    assert (module.offset, module.casting_mode, module.variance_epsilon) == (offset, mode, 1e-5)
    assert torch.equal(module.weight, torch.full((64,), initial, device=device))
    x = torch.randn(SIZES, device=device).bfloat16()
    torch.nn.init.normal_(module.weight)
    expected = truenorm.rms_norm(x, module.weight, eps=1e-5, offset=offset, casting_mode=mode)
    assert torch.equal(module(x), expected)


def test_modules_without_weight_with_residual_and_layer_norm(device):
    x, residual, weight = tensors(device)
    assert torch.equal(liger.LigerRMSNormForGemma4(64, with_scale=False)(x), truenorm.rms_norm(x, casting_mode="gemma"))
    fused = liger.LigerFusedAddRMSNorm(64).to(device)
    assert torch.equal(fused(x, residual)[1], x + residual)
    layer = liger.LigerLayerNorm(64, bias=True).to(device)
    assert layer.state_dict().keys() == {"weight", "bias"}
    assert torch.equal(layer(x), truenorm.layer_norm(x, (64,), layer.weight, layer.bias, 1e-6))
    with pytest.raises(ValueError, match="init_fn"):
        liger.LigerRMSNorm(64, init_fn="twos")


def test_forward_can_be_bound_to_another_class(device):
    """As Liger-Kernel patches live modules: by binding forward and setting five attributes."""
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.randn(64, device=device))
    names = {"variance_epsilon": 1e-6, "offset": 1.0, "casting_mode": "gemma", "in_place": True, "row_mode": None}
    for name, value in names.items():
        setattr(module, name, value)
    module.forward = types.MethodType(liger.LigerRMSNorm.forward, module)
    module.extra_repr = types.MethodType(liger.LigerRMSNorm.extra_repr, module)
    x = torch.randn(SIZES, device=device)
    assert torch.equal(module(x), truenorm.rms_norm(x, module.weight, offset=1.0, casting_mode="gemma"))
    assert "offset=1.0" in repr(module)


# ---- Inside liger_kernel, which needs triton to be imported ----------------------------------------------------------


@pytest.fixture
def liger_kernel():
    pytest.importorskip("liger_kernel")
    try:
        import liger_kernel.functional
        import liger_kernel.transformers  # noqa: F401
    except ImportError as error:
        pytest.skip(f"liger_kernel cannot be imported: {error}")
    yield sys.modules["liger_kernel"]
    liger.unregister()


@pytest.fixture
def registered(liger_kernel):
    liger.register()
    return liger_kernel


PUBLIC = [name for name in liger.__all__ if name.lower().startswith("liger")]


@pytest.mark.parametrize("name", PUBLIC)
def test_signatures_are_theirs(liger_kernel, name):
    import liger_kernel.ops
    import liger_kernel.transformers.functional
    import liger_kernel.transformers.rms_norm

    places = (liger_kernel.ops, liger_kernel.transformers, liger_kernel.transformers.functional)
    places = (*places, liger_kernel.transformers.rms_norm)
    theirs = next(vars(place)[name] for place in places if name in vars(place))
    ours = getattr(liger, name)
    if name.endswith("Function"):
        theirs = theirs.forward
        wanted = [*inspect.signature(theirs).parameters.values()][1:]  # without ctx
        got = [*inspect.signature(ours.apply).parameters.values()]
    else:
        wanted = [*inspect.signature(theirs).parameters.values()]
        got = [*inspect.signature(ours).parameters.values()]
    pairs = [(parameter.name, parameter.default) for parameter in got]
    assert pairs[: len(wanted)] == [(parameter.name, parameter.default) for parameter in wanted]


def test_the_registry_chooses_ours(registered, device):
    from liger_kernel import functional
    from liger_kernel.backends import available_impls, resolve_impl

    for op in ("rms_norm", "fused_add_rms_norm", "layer_norm"):
        assert available_impls(op)[0] == resolve_impl(op).impl_name == "truenorm"
    x, residual, weight = tensors(device)
    y = functional.rms_norm(x, weight, 1e-5, offset=1.0, casting_mode="gemma", in_place=True)
    assert torch.equal(y, truenorm.rms_norm(x, weight, eps=1e-5, offset=1.0, casting_mode="gemma"))
    y, s = functional.fused_add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(s, x + residual) and torch.equal(y, truenorm.rms_norm(s, weight, eps=1e-5))
    y = functional.layer_norm(x, weight, weight, 1e-5)
    assert torch.equal(y, truenorm.layer_norm(x, (64,), weight, weight, 1e-5))
    with pytest.raises(ValueError, match="mode: got 'quick'"):
        functional.layer_norm(x, weight, weight, 1e-5, mode="quick")


def test_their_modules_use_ours(registered, device):
    from liger_kernel import transformers

    x, residual, _ = tensors(device)
    module = transformers.LigerRMSNorm(64, 1e-5, offset=1.0, casting_mode="gemma").to(device)
    expected = truenorm.rms_norm(x, module.weight, eps=1e-5, offset=1.0, casting_mode="gemma")
    assert torch.equal(module(x), expected)
    y, s = transformers.LigerFusedAddRMSNorm(64).to(device)(x, residual)
    assert torch.equal(s, x + residual)
    layer = transformers.LigerLayerNorm(64).to(device)
    assert torch.equal(layer(x), truenorm.layer_norm(x, (64,), layer.weight, layer.bias, 1e-6))


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma"])
def test_their_patch_of_a_live_model_uses_ours(registered, device, name):
    pytest.importorskip("transformers")
    from liger_kernel.transformers import apply_liger_kernel_to_gemma, apply_liger_kernel_to_gemma3_text
    from liger_kernel.transformers import apply_liger_kernel_to_llama as apply_to_llama

    import truenorm.integrations.transformers as ours
    from transformers_models import inputs, make, outputs_and_gradients

    apply = {"llama": apply_to_llama, "gemma": apply_liger_kernel_to_gemma, "gemma3": apply_liger_kernel_to_gemma3_text}
    model = make(name, device=device)
    other = copy.deepcopy(model)
    only_norms = dict.fromkeys(("rope", "cross_entropy", "fused_linear_cross_entropy", "geglu", "swiglu"), False)
    accepted = inspect.signature(apply[name]).parameters
    module = sys.modules[type(model).__module__]
    cls_name = type(model.model.norm).__name__
    cls = getattr(module, cls_name)
    try:
        apply[name](**{key: value for key, value in only_norms.items() if key in accepted}, model=model)
    finally:
        setattr(module, cls_name, cls)  # their patch also replaces the class in the modelling file
    ours.patch(other)
    output, gradients = outputs_and_gradients(model, inputs(name, model))
    expected, gradients_expected = outputs_and_gradients(other, inputs(name, other))
    assert "LigerRMSNorm" in repr(model.model.norm)
    assert torch.equal(output, expected)
    assert all(torch.equal(gradients[key], gradients_expected[key]) for key in gradients_expected)


def test_unregister_gives_everything_back(liger_kernel):
    import liger_kernel.ops
    from liger_kernel.backends import available_impls

    places = [module for key, module in sys.modules.items() if key.startswith("liger_kernel.transformers")]
    places.append(liger_kernel.ops)
    before = [(place, dict(vars(place))) for place in places]
    impls = available_impls("rms_norm")
    liger.register()
    liger.register()
    assert liger_kernel.ops.LigerRMSNormFunction is liger.LigerRMSNormFunction
    assert available_impls("rms_norm")[0] == "truenorm"
    liger.unregister()
    assert available_impls("rms_norm") == impls
    for place, names in before:
        assert all(vars(place)[name] is value for name, value in names.items() if name in vars(place))


def test_unregister_restores_what_was_imported_meanwhile(liger_kernel, monkeypatch):
    import importlib

    import liger_kernel.ops
    import liger_kernel.transformers

    names = ("rms_norm", "layer_norm", "fused_add_rms_norm")
    for name in names:
        monkeypatch.delitem(sys.modules, f"liger_kernel.transformers.{name}", raising=False)
    liger.register()
    modules = [importlib.import_module(f"liger_kernel.transformers.{name}") for name in names]
    assert modules[0].LigerRMSNormFunction is liger.LigerRMSNormFunction
    liger.unregister()
    for module in modules:
        held = {name: value for name, value in vars(module).items() if name in liger._FUNCTIONS}
        assert all(value is getattr(liger_kernel.ops, name) for name, value in held.items())
    assert modules[0].LigerRMSNormFunction is not liger.LigerRMSNormFunction


def test_register_without_liger_kernel_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    monkeypatch.setitem(sys.modules, "liger_kernel.ops", None)
    with pytest.raises(ImportError, match=r"liger.register: needs Liger-Kernel and triton \(pip install liger-kernel\)"):
        liger.register()
