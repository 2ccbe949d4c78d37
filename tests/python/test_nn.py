"""truenorm.nn: what the modules compute, and that their state interchanges with torch.nn's and Hugging Face's."""

import copy
import decimal
import fractions
import pickle

import numpy as np
import pytest
import torch
import torch.fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import truenorm
from truenorm.nn import FusedAddRMSNorm, LayerNorm, RMSNorm

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def random_parameters(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return module


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset, mode", [(0.0, "llama"), (0.0, "gemma"), (1.0, "gemma")])
def test_rms_norm_is_the_function(device, dtype, offset, mode):
    module = random_parameters(RMSNorm(96, 1e-5, bias=True, offset=offset, casting_mode=mode, device=device))
    x = torch.randn(3, 5, 96, device=device).to(dtype)
    expected = truenorm.rms_norm(x, module.weight, module.bias, 1e-5, offset=offset, casting_mode=mode)
    assert torch.equal(module(x), expected)
    assert module(x).dtype == dtype


def test_layer_norm_is_the_function(device):
    module = random_parameters(LayerNorm(96, device=device))
    x = torch.randn(3, 5, 96, device=device)
    assert torch.equal(module(x), truenorm.layer_norm(x, (96,), module.weight, module.bias, 1e-5))
    y, s = module(x, x)
    assert torch.equal(s, x + x)
    assert torch.equal(y, module(s))


def test_fused_add_returns_what_was_normalised(device):
    module = random_parameters(FusedAddRMSNorm(96, device=device))
    x, residual = torch.randn(2, 4, 96, device=device).bfloat16()
    y, s = module(x, residual)
    assert torch.equal(s, x + residual)
    expected = truenorm.rms_norm(s, module.weight)
    assert torch.equal(y, expected)
    wide = FusedAddRMSNorm(96, residual_dtype=torch.float32, device=device)
    assert wide(x, residual)[1].dtype == torch.float32


@pytest.mark.parametrize("cls", [RMSNorm, FusedAddRMSNorm, LayerNorm])
@pytest.mark.parametrize("affine", [False, True])
def test_two_normalised_dimensions_are_one_row(device, cls, affine):
    wide = random_parameters(cls((8, 16), elementwise_affine=affine, device=device))
    flat = cls(128, elementwise_affine=affine, device=device)
    flat.load_state_dict({name: values.flatten() for name, values in wide.state_dict().items()})
    x = torch.randn(3, 8, 16, device=device, requires_grad=True)
    rows = x.detach().clone().requires_grad_()
    inputs, flat_inputs = (x,), (rows.flatten(-2),)
    if cls is FusedAddRMSNorm:
        inputs, flat_inputs = inputs * 2, flat_inputs * 2
    y, flat_y = wide(*inputs), flat(*flat_inputs)
    if cls is FusedAddRMSNorm:
        y, flat_y = y[0], flat_y[0]
    assert y.shape == x.shape
    assert torch.equal(y.flatten(-2), flat_y)
    y.square().sum().backward()
    flat_y.square().sum().backward()
    assert torch.equal(x.grad, rows.grad)
    for mine, theirs in zip(wide.parameters(), flat.parameters()):
        assert mine.grad.shape == (8, 16)
        assert torch.equal(mine.grad.flatten(), theirs.grad)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}, {"dtype": torch.bfloat16}])
def test_state_interchanges_with_torch_layer_norm(options):
    ours, theirs = LayerNorm(64, **options), torch.nn.LayerNorm(64, **options)
    random_parameters(theirs)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(4, 64, dtype=options.get("dtype"))
    assert torch.allclose(ours(x), theirs(x), rtol=1e-5 if x.dtype == torch.float32 else 1e-2, atol=1e-5)


@pytest.mark.parametrize("eps", [None, 1e-2])
@pytest.mark.parametrize("affine", [False, True])
def test_state_interchanges_with_torch_rms_norm(eps, affine):
    ours = RMSNorm(64, eps, affine, casting_mode="gemma")
    theirs = random_parameters(torch.nn.RMSNorm(64, eps, affine))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(4, 64) * 1e-3  # so small that eps shows
    assert torch.allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eps_none_is_what_torch_makes_of_it(device, dtype):
    x = (torch.randn(4, 64, device=device) * 1e-3).to(dtype)  # where eps counts
    module, theirs = RMSNorm(64, None, device=device), torch.nn.RMSNorm(64, None, device=device)
    assert torch.equal(module(x), truenorm.rms_norm(x, module.weight, eps=torch.finfo(torch.float32).eps))
    torch.testing.assert_close(module(x), theirs(x).to(dtype))


def test_weight_starts_where_it_multiplies_by_one():
    assert torch.equal(RMSNorm(4).weight, torch.ones(4))
    gemma = RMSNorm(4, offset=1.0)
    assert torch.equal(gemma.weight, torch.zeros(4))
    random_parameters(gemma).reset_parameters()
    assert torch.equal(gemma.weight, torch.zeros(4))
    layer = random_parameters(LayerNorm(4))
    layer.reset_parameters()
    assert torch.equal(layer.weight, torch.ones(4)) and torch.equal(layer.bias, torch.zeros(4))


def test_attributes_that_patched_modules_rely_on():
    module = RMSNorm(4, 1e-3, offset=1.0, casting_mode="gemma", in_place=True, row_mode=True)
    names = ("variance_epsilon", "offset", "casting_mode", "in_place", "row_mode")
    assert [getattr(module, name) for name in names] == [1e-3, 1.0, "gemma", True, True]
    module.variance_epsilon = 1e-4
    assert module.eps == 1e-4


def test_device_and_type_of_the_parameters():
    module = LayerNorm(4, device="meta", dtype=torch.bfloat16)
    assert module.weight.is_meta and module.bias.dtype == torch.bfloat16
    assert RMSNorm(4, elementwise_affine=False, bias=True).bias is None


class PassOn(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.array, fractions.Fraction, decimal.Decimal])
def test_any_real_number_is_an_eps(kind):
    x = torch.randn(3, 64)
    expected = truenorm.rms_norm(x, eps=0.25, offset=0.5)
    assert torch.equal(truenorm.rms_norm(x, eps=kind(0.25), offset=kind(0.5)), expected)
    assert torch.equal(RMSNorm(64, eps=kind(0.25), elementwise_affine=False)(x), expected)
    with PassOn():  # by way of the operators, which take floats alone
        assert torch.equal(truenorm.rms_norm(x, eps=kind(0.25)), expected)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`torch.jit")
@pytest.mark.parametrize("cls", [RMSNorm, FusedAddRMSNorm, LayerNorm])
def test_jit_trace_records_the_operator(cls):
    module = cls(64)
    inputs = [torch.randn(2, 3, 64) for _ in range(2 if cls is FusedAddRMSNorm else 1)]
    traced = torch.jit.trace(module, tuple(inputs))
    assert "truenorm::" in str(traced.inlined_graph)
    others = [torch.randn(2, 3, 64) for _ in inputs]
    for got, want in zip(tree_leaves(traced(*others)), tree_leaves(module(*others))):
        assert torch.equal(got, want)


class Norms(torch.nn.Module):
    """Each module and each function, with and without a residual."""

    def __init__(self):
        super().__init__()
        self.rms, self.fused, self.layer = RMSNorm(64, bias=True), FusedAddRMSNorm(64), LayerNorm(64)

    def forward(self, x):
        y, s = self.fused(self.rms(x), x)
        z, s = self.layer(y, s)
        z = z + truenorm.rms_norm(y, self.rms.weight, eps=0.25, offset=1.0) + self.layer(s)
        y, s = truenorm.fused_add_rms_norm(z, s, self.fused.weight, casting_mode="gemma")
        return truenorm.layer_norm(y, (64,), self.layer.weight, out_dtype=torch.bfloat16), s


def test_fx_traces_functions_and_modules():
    """The functions are the graph's nodes, whatever name they were imported by, and parameters stay parameters."""
    model = random_parameters(Norms())
    graph = torch.fx.symbolic_trace(model)
    assert {node.target for node in graph.graph.nodes if node.op == "call_function"} >= {
        truenorm.rms_norm,
        truenorm.layer_norm,
    }
    x = torch.randn(3, 64)
    for got, want in zip(graph(x), model(x)):
        assert got.dtype == want.dtype and torch.equal(got, want)
    sum(output.float().square().sum() for output in graph(x)).backward()
    assert all(parameter.grad is not None for parameter in graph.parameters())


@pytest.mark.parametrize("cls", [RMSNorm, FusedAddRMSNorm, LayerNorm])
def test_fx_traces_a_module_by_itself(cls):
    module = random_parameters(cls(64))
    inputs = [torch.randn(3, 64) for _ in range(2 if cls is FusedAddRMSNorm else 1)]
    for got, want in zip(tree_leaves(torch.fx.symbolic_trace(module)(*inputs)), tree_leaves(module(*inputs))):
        assert torch.equal(got, want)


def test_fx_with_several_normalised_dimensions():
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return module.__module__.startswith("truenorm.") or super().is_leaf_module(module, name)

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), RMSNorm((4, 16)))
    with pytest.raises(TypeError, match="nn.RMSNorm: x: got Proxy; needs a Tensor, .* as a leaf"):
        torch.fx.symbolic_trace(model)
    x = torch.randn(3, 4, 16)
    assert torch.equal(torch.fx.GraphModule(model, Tracer().trace(model))(x), model(x))
    layer = random_parameters(LayerNorm((4, 16)))
    assert torch.equal(torch.fx.symbolic_trace(layer)(x), layer(x))


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("cls", [RMSNorm, FusedAddRMSNorm, LayerNorm])
def test_jit_script_is_refused_in_one_sentence(cls):
    for model in (cls(64), torch.nn.Sequential(cls(64))):
        with pytest.raises(TypeError, match=f"^truenorm.nn.{cls.__name__}: got torch.jit.script, .* needs torch.jit.trace"):
            torch.jit.script(model)


def test_a_shape_that_does_not_fit_is_named():
    with pytest.raises(RuntimeError, match=r"x: got shape \[2, 8\]; needs one that ends with \[16\]"):
        RMSNorm(16)(torch.randn(2, 8))
    with pytest.raises(RuntimeError, match=r"residual: got shape \[2, 8\]"):
        FusedAddRMSNorm(16)(torch.randn(2, 16), torch.randn(2, 8))
    with pytest.raises(TypeError, match="x: got str; needs a Tensor"):
        RMSNorm(64)("s")


def test_repr_copies_and_pickles():
    module = random_parameters(RMSNorm(4, offset=1.0, casting_mode="gemma"))
    expected = "(4,), eps=1e-06, elementwise_affine=True, bias=False, offset=1.0, casting_mode=gemma"
    assert repr(module) == f"RMSNorm({expected})"
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other.weight, module.weight)
        assert repr(other) == repr(module)


@pytest.mark.parametrize("make", [RMSNorm, LayerNorm])
def test_weights_that_a_wrapper_keeps_elsewhere(make, device):
    """Parametrizations and FSDP take the weight out of the parameters, and leave an attribute in its place."""

    class Twice(torch.nn.Module):
        def forward(self, weight):
            return weight * 2

    x = torch.randn(3, 64, device=device)
    module, parametrized, plain = (make(64, device=device) for _ in range(3))
    torch.nn.utils.parametrize.register_parametrization(parametrized, "weight", Twice())
    del plain.weight
    plain.weight = torch.full((64,), 2.0, device=device)
    assert torch.equal(parametrized(x), module(x) * 2)
    assert torch.equal(plain(x), module(x) * 2)
