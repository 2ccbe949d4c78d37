"""truenorm.integrations.transformers on single modules: which are known, what their calls take, and giving all back."""

import functools
import warnings

import pytest
import torch
from torch import nn

import truenorm
from truenorm.integrations.transformers import patch, patching, unpatch


class Norm(nn.Module):
    """y = weight * x / rms(x), in FP32; the modules below differ from it in one thing each."""

    def __init__(self, size=64, **attributes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = 1e-6
        for name, value in attributes.items():
            setattr(self, name, value)

    def norm(self, x, eps=None):
        x32 = x.float()
        return x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + (self.eps if eps is None else eps))


class PlainRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x)).type_as(x)


class ScaledRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x) * self.scale).type_as(x)


class AxesRMSNorm(Norm):
    def forward(self, x):
        rstd = torch.rsqrt(x.float().pow(2).mean(self.axes, keepdim=True) + self.eps)
        return (self.weight * (x.float() * rstd)).type_as(x)


class CastRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x).to(self.dtype)).type_as(x)


class CallableRMSNorm(Norm):
    def forward(self, x):
        return self.after((self.weight * self.norm(x)).type_as(x))


class TrainingRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x)).type_as(x) * (2 if self.training else 1)


class EvalRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x)).type_as(x) * (1 if self.training else 2)


class HalfRMSNorm(Norm):
    def forward(self, x):
        y = (self.weight * self.norm(x)).type_as(x)
        return y + 1 if x.dtype == torch.float16 else y


class ClampedRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x.clamp(-200, 200))).type_as(x)


class FlatRMSNorm(Norm):
    def forward(self, x):
        y = (self.weight * self.norm(x)).type_as(x)
        return y * 2 if x.dim() == self.odd else y


class OwnTypesEpsRMSNorm(Norm):
    def forward(self, x):
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return (self.weight * self.norm(x, eps)).type_as(x)


class ManyRMSNorm(Norm):
    def forward(self, *args):
        return (self.weight * self.norm(args[0])).type_as(args[0])


class SometimesRMSNorm(Norm):
    """Twice the norm where `when`, the name of a static method, says so of x."""

    def forward(self, x):
        y = (self.weight * self.norm(x)).type_as(x)
        return torch.where(getattr(self, self.when)(x), 2 * y, y)

    @staticmethod
    def long(x):
        return torch.tensor(x.dim() > 1 and x.shape[-2] > 150)

    @staticmethod
    def autocast(x):
        return torch.tensor(torch.is_autocast_enabled("cpu"))

    @staticmethod
    def peaked(x):
        return (x.abs().amax(-1, keepdim=True) > 2e4) & (x.abs().mean(-1, keepdim=True) < 1e3)


class NoNanRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x.nan_to_num())).type_as(x)


class FiniteRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.norm(x.nan_to_num(nan=torch.nan))).type_as(x)


class ZeroRowsRMSNorm(Norm):
    def forward(self, x):
        y = (self.weight * self.norm(x)).type_as(x)
        return y + (x == 0).all(-1, keepdim=True)


class FailingRMSNorm(Norm):
    def forward(self, x):
        raise ValueError("only for rows\nof " + "many " * 100)


class NormWithoutEps(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x.float(), x.shape[-1:]).type_as(x)


LEFT = {
    "long sequence": (SometimesRMSNorm(when="long"), "none of the norms"),
    "autocast": (SometimesRMSNorm(when="autocast"), "none of the norms"),
    "infinite": (FiniteRMSNorm(), "none of the norms"),
    "peaked": (SometimesRMSNorm(when="peaked"), "none of the norms"),
    "nan": (NoNanRMSNorm(), "none of the norms"),
    "zeros": (ZeroRowsRMSNorm(), "none of the norms"),
    "failing": (FailingRMSNorm(), "failed on a small input: ValueError: only for rows of many"),
    "without eps": (NormWithoutEps(), "what its eps is"),
    "scalar gain": (PlainRMSNorm(1), "one gain"),
    "tensor attribute": (ScaledRMSNorm(scale=torch.tensor(1.0)), "attribute scale"),
    "callable attribute": (CallableRMSNorm(after=torch.nn.functional.relu), "attribute after"),
    "training": (TrainingRMSNorm(), "none of the norms"),
    "eval": (EvalRMSNorm(), "none of the norms"),
    "fp16": (HalfRMSNorm(), "none of the norms"),
    "clamp": (ClampedRMSNorm(), "none of the norms"),
    "2-D": (FlatRMSNorm(odd=2), "none of the norms"),
    "3-D": (FlatRMSNorm(odd=3), "none of the norms"),
    "4-D": (FlatRMSNorm(odd=4), "none of the norms"),
    "finfo eps": (OwnTypesEpsRMSNorm(eps=None), "none of the norms"),
    "eps tensor": (PlainRMSNorm(eps=torch.tensor(1e-6)), "no number"),
    "any number": (ManyRMSNorm(), "more than one tensor"),
}


def test_our_own_modules_are_ours_already():
    modules = [truenorm.nn.RMSNorm(64), truenorm.nn.FusedAddRMSNorm(64), truenorm.nn.LayerNorm(64)]
    report = patch(torch.nn.ModuleList(modules))
    assert [entry.what for entry in report.already] == ["truenorm's own module"] * 3
    assert not report.left and not report.replaced


@pytest.mark.parametrize("name", LEFT)
def test_what_differs_somewhere_is_left_alone(name):
    module, reason = LEFT[name]
    cls = type(module)
    report = patch(module)
    assert reason in report.left[0].what
    assert type(module) is cls


@pytest.mark.parametrize(
    "cls, known, other",
    [
        (ScaledRMSNorm, {"scale": 1.0}, {"scale": 3.0}),
        (AxesRMSNorm, {"axes": (-1,)}, {"axes": (-2, -1)}),
        (CastRMSNorm, {"dtype": torch.float32}, {"dtype": torch.float64}),
        (CastRMSNorm, {"dtype": torch.float32}, {"dtype": torch.bfloat16}),
        (CallableRMSNorm, None, {"after": functools.partial(torch.mul, 3)}),
    ],
)
def test_attributes_of_any_type_tell_modules_apart(cls, known, other):
    x = torch.randn(3, 5, 64)
    if known is not None:
        assert patch(cls(**known)).replaced
    module = cls(**other)
    expected = module(x)
    patch(module)
    torch.testing.assert_close(module(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(64,), (4, 16), (128,), (2, 3, 5), (1,)])
@pytest.mark.parametrize("cls", [nn.RMSNorm, nn.LayerNorm])
def test_torchs_norms_normalise_their_shape(cls, shape, affine, device):
    module = cls(shape, elementwise_affine=affine, device=device)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(6, *shape, device=device, requires_grad=True)
    expected = module(x)
    wanted = torch.autograd.grad(expected.square().sum(), (x, *module.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own of parts that are imported only now
        assert patch(module).replaced
    y = module(x)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    got = torch.autograd.grad(y.square().sum(), (x, *module.parameters()))
    for ours, theirs in zip(got, wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cls", [nn.RMSNorm, nn.LayerNorm])
def test_another_last_dimension_is_still_refused(cls):
    module = cls(128, elementwise_affine=False)
    assert patch(module).replaced
    with pytest.raises(RuntimeError, match="normalized_shape"):
        module(torch.randn(2, 64))


@pytest.mark.parametrize("make", [PlainRMSNorm, lambda: nn.RMSNorm(64), lambda: nn.LayerNorm(64)])
def test_calls_by_keyword_are_served(make):
    module, x = make(), torch.randn(3, 64)
    name = "input" if isinstance(module, nn.LayerNorm) else "x"
    patch(module)
    assert torch.equal(module(**{name: x}), module(x))
    for arguments in ((), (x, x)):
        with pytest.raises(TypeError):
            module(*arguments)
    with pytest.raises(TypeError):
        module(wrong=x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_go_to_the_modules_own_code(layout):
    module = nn.LayerNorm(64)
    x = torch.nested.nested_tensor([torch.randn(3, 64), torch.randn(5, 64)], layout=layout)
    expected = module(x)
    patch(module)
    for ours, theirs in zip(module(x).unbind(), expected.unbind()):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("make", [PlainRMSNorm, lambda: nn.RMSNorm(64), lambda: nn.LayerNorm(64)])
def test_forward_mode_goes_to_the_modules_own_code(make):
    module, x, tangent = make(), torch.randn(3, 64), torch.randn(3, 64)
    expected = torch.func.jvp(module, (x,), (tangent,))
    patch(module)
    for ours, theirs in zip(torch.func.jvp(module, (x,), (tangent,)), expected):
        assert torch.equal(ours, theirs)


def test_an_eps_that_became_a_tensor_goes_to_the_modules_own_code():
    module, x = PlainRMSNorm(), torch.randn(3, 64)
    patch(module)
    module.eps = torch.tensor(0.5)
    expected = module._truenorm_original.forward(module, x)
    assert torch.equal(module(x), expected)


def test_empty_rows_go_to_the_modules_own_code():
    module, x = nn.LayerNorm(0), torch.randn(3, 0)
    expected = module(x)
    patch(module)
    assert torch.equal(module(x), expected)


def test_compiled_models_follow():
    served = []

    def backend(graph, inputs):
        served.append(any("truenorm" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    model, x = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)), torch.randn(3, 64)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    compiled(x)
    patch(model)
    compiled(x)
    patch(model)  # replaces nothing, and drops nothing
    compiled(x)
    unpatch(model)
    compiled(x)
    assert served == [False, True, False]


def test_contexts_may_overlap():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=8
    )

    def made_patched():
        return bool(unpatch(transformers.LlamaModel(config)).replaced)

    own = transformers.PreTrainedModel.post_init
    first, second, layers = patching(), patching(), patching(rms_norm=False)
    first.__enter__()
    second.__enter__()
    layers.__enter__()
    first.__exit__(None, None, None)
    assert made_patched()
    second.__exit__(None, None, None)
    assert not made_patched()
    layers.__exit__(None, None, None)
    assert not made_patched()
    assert transformers.PreTrainedModel.post_init is own


@pytest.mark.parametrize("function", [patch, unpatch])
@pytest.mark.parametrize("model, got", [(None, "None"), ("x", "a str"), (nn.LayerNorm, "a type")])
def test_what_is_no_model_is_named(function, model, got):
    with pytest.raises(TypeError, match=f"{function.__name__}: model: got {got}; needs a torch.nn.Module"):
        function(model)


def test_patched_modules_still_use_truenorm():
    x = torch.randn(64, 4099)
    for module, ours in (
        (nn.RMSNorm(4099), truenorm.rms_norm(x, torch.ones(4099), eps=None, casting_mode="gemma")),
        (nn.LayerNorm(4099), truenorm.layer_norm(x, 4099, torch.ones(4099), torch.zeros(4099))),
        (PlainRMSNorm(4099), truenorm.rms_norm(x, torch.ones(4099), casting_mode="gemma")),
    ):
        assert patch(module).replaced
        assert torch.equal(module(x), ours) and torch.equal(module(x.view(8, 8, -1)), ours.view(8, 8, -1))
