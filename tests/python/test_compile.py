"""The operators and torch.compile: opcheck, whole graphs, changing sizes, export, and eager's bits."""

import pytest
import torch

import truenorm
from c_library import same_bits

N = 64
OPS = torch.ops.truenorm


def forward_samples(device):
    x = torch.randn(3, 5, N, device=device)
    weight, bias = (torch.randn(N, device=device) for _ in range(2))
    half = x.bfloat16()
    rms, layer = OPS.rms_norm_forward.default, OPS.layer_norm_forward.default
    return {
        "rms": (rms, (x, None, weight, bias, 1e-6, 0.0, "llama")),
        "rms_residual": (rms, (half, x, weight, None, 1e-6, 1.0, "gemma", torch.float32, torch.bfloat16)),
        "rms_plain": (rms, (half.transpose(0, 1), None, None, None, 1e-6, 0.0, "none")),
        "layer": (layer, (x, None, weight, bias, 1, 1e-5, 0.0)),
        "layer_residual": (layer, (x, half, weight[:5, None].expand(5, N).contiguous(), None, 2, 1e-5, 0.0)),
    }


@pytest.mark.parametrize("name", ["rms", "rms_residual", "rms_plain", "layer", "layer_residual"])
def test_opcheck_of_the_forwards(name, device):
    op, arguments = forward_samples(device)[name]
    trained = tuple(a.detach().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments)
    torch.library.opcheck(op, arguments, test_utils=("test_schema", "test_faketensor"))
    torch.library.opcheck(op, trained)


def test_opcheck_of_the_backwards(device):
    dy, ds, s = (torch.randn(3, 5, N, device=device) for _ in range(3))
    mean, rstd, weight = torch.randn(3, 5, device=device), torch.rand(3, 5, device=device), torch.randn(N, device=device)
    f32, bf16 = torch.float32, torch.bfloat16
    everything, only_x = [True] * 4, [True, False, False, False]
    for arguments in (
        (dy, ds, s, rstd, weight, 1.0, "llama", bf16, f32, f32, everything),
        (dy.transpose(0, 1).contiguous().transpose(0, 1), None, s, rstd, None, 0.0, "gemma", f32, f32, f32, only_x),
        (None, ds, s, rstd, weight, 0.0, "llama", f32, f32, f32, everything),
    ):
        torch.library.opcheck(OPS.rms_norm_backward.default, arguments)
    torch.library.opcheck(
        OPS.layer_norm_backward.default, (dy, ds, s, mean, rstd, weight, 1, 0.0, f32, f32, bf16, everything)
    )


@pytest.mark.parametrize("layout", ["dense", "transposed", "empty", "padded"])
def test_fake_tensors_are_as_real_ones(layout, device):
    x = torch.randn(4, 6, N + 3, device=device)
    x = {
        "dense": x[..., :N].contiguous(),
        "transposed": x[..., :N].transpose(0, 1),
        "empty": x[:0, :, :N],
        "padded": x[..., :N],
    }[layout]
    for operator, arguments in (
        (OPS.rms_norm_forward, (x, None, None, None, 1e-6, 0.0, "llama")),
        (OPS.layer_norm_forward, (x, x, None, None, 1, 1e-6, 0.0)),
    ):
        real = operator(*arguments)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = operator(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments))
        for r, f in zip(real, fake):
            assert (r.shape, r.stride(), r.dtype, r.device) == (f.shape, f.stride(), f.dtype, f.device)


def block(x, residual, weight, bias):
    """What a transformer's layer does with its norms."""
    y, residual = truenorm.fused_add_rms_norm(x, residual, weight, eps=1e-5)
    z = truenorm.layer_norm(y * 2, N, weight, bias)
    return truenorm.rms_norm(z, weight, offset=1.0, casting_mode="gemma", eps=None) + residual


def arguments_of(rows, device, dtype=torch.float32):
    shapes = ((rows, N), (rows, N), (N,), (N,))
    return [torch.randn(shape, device=device).to(dtype).requires_grad_() for shape in shapes]


def bits_of(f, given):
    out = f(*given)
    return [out, *torch.autograd.grad(out, given, torch.ones_like(out))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_whole_graphs_of_any_size_have_eager_bits(dtype, device):
    graphs = []

    def count(graph, example):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (4, 7, 33):
        given = arguments_of(rows, device, dtype)
        assert all(same_bits(a, b) for a, b in zip(bits_of(compiled, given), bits_of(block, given))), rows
    torch._dynamo.reset()
    torch.compile(block, fullgraph=True, dynamic=True, backend=count)(*arguments_of(4, device, dtype))
    names = {str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"}
    assert {"truenorm.rms_norm_forward", "truenorm.layer_norm_forward"} <= names, names


def norms_alone(x, residual, weight, bias):
    """Nothing for the compiler to generate code for, which on a CPU takes it most of a minute."""
    return truenorm.rms_norm(x, weight, bias, residual=residual)[0]


def test_inductor_has_eager_bits(device):
    torch._dynamo.reset()
    f = block if device == "cuda" else norms_alone
    compiled = torch.compile(f, fullgraph=True)
    given = arguments_of(16, device)
    assert all(same_bits(a, b) for a, b in zip(bits_of(compiled, given), bits_of(f, given)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_autograd_has_eager_bits(dtype, device):
    graphs = []

    def compiler(graph):
        graphs.append(str(graph.graph))
        return torch.compile(graph, backend="aot_eager", fullgraph=True)

    def gradients(f, given, leaves):
        for t in given:
            t.grad = None
        f(*given).sum().backward(inputs=leaves)
        return [t.grad for t in leaves]

    torch._dynamo.reset()
    for rows in (4, 9):
        given = arguments_of(rows, device, dtype)
        for leaves in (given, given[:1], given[2:]):
            eager = gradients(block, given, leaves)
            with torch._dynamo.compiled_autograd._enable(compiler):
                compiled = gradients(block, given, leaves)
            assert all(same_bits(a, b) for a, b in zip(eager, compiled)), (rows, len(leaves))
    assert len(graphs) == 3  # one for each set of gradients, for any number of rows
    assert graphs[0].count("RmsNormBackward") == 2 and graphs[0].count("LayerNormBackward") == 1
    with torch._dynamo.config.patch(compiled_autograd=True):  # behind a compiled forward
        compiled = gradients(torch.compile(block, backend="aot_eager"), given, given)
    assert all(same_bits(a, b) for a, b in zip(gradients(block, given, given), compiled))


def test_compiled_autograd_keeps_options_apart(device):
    """Graphs are cached by what the node says of itself: equal shapes with other options need another."""
    torch._dynamo.reset()
    x, weight = (torch.randn(shape, device=device).bfloat16().requires_grad_() for shape in ((6, N), (N,)))
    dy = torch.randn(6, N, device=device).bfloat16()
    for f in (
        lambda: truenorm.rms_norm(x, weight),
        lambda: truenorm.rms_norm(x, weight, offset=1.0),
        lambda: truenorm.rms_norm(x, weight, offset=1.0, casting_mode="gemma"),
        lambda: truenorm.layer_norm(x, N, weight),
        lambda: truenorm.layer_norm(x.view(2, 3, N), N, weight).view(6, N),
        lambda: truenorm.rms_norm(x),
    ):
        results = []
        for compiled in (False, True):
            x.grad = weight.grad = None
            y = f()
            if compiled:
                with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
                    y.backward(dy)
            else:
                y.backward(dy)
            results.append([g for g in (x.grad, weight.grad) if g is not None])
        assert len(results[0]) == len(results[1])
        assert all(same_bits(a, b) for a, b in zip(*results))


def test_export_with_a_dynamic_number_of_rows(device):
    class Block(torch.nn.Module):
        def forward(self, x, residual, weight, bias):
            return block(x, residual, weight, bias)

    rows = torch.export.Dim("rows", min=2, max=1000)
    given = tuple(t.detach() for t in arguments_of(4, device))
    program = torch.export.export(Block(), given, dynamic_shapes=({0: rows}, {0: rows}, None, None))
    other = tuple(t.detach() for t in arguments_of(9, device))
    assert same_bits(program.module()(*other), block(*other))


def test_meta_tensors():
    y, s = truenorm.fused_add_rms_norm(torch.empty(2, 3, N, device="meta"), torch.empty(2, 3, N, device="meta"))
    assert y.is_meta and s.shape == (2, 3, N)


def test_subclasses_and_modes_see_the_operator(device):
    class Seen(torch.Tensor):
        calls = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.calls.append(str(function))
            return super().__torch_function__(function, types, args, kwargs or {})

    x = torch.randn(4, N, device=device)
    y = truenorm.rms_norm(x.as_subclass(Seen))
    assert isinstance(y, Seen) and any("rms_norm_forward" in call for call in Seen.calls)
    assert same_bits(y.as_subclass(torch.Tensor), truenorm.rms_norm(x))

    class Log(torch.utils._python_dispatch.TorchDispatchMode):
        calls = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.calls.append(str(function))
            return function(*args, **(kwargs or {}))

    x.requires_grad_()
    with Log():
        truenorm.rms_norm(x).sum().backward()
    assert "truenorm.rms_norm_forward.default" in Log.calls and "truenorm.rms_norm_backward.default" in Log.calls


def test_copy_on_write_inputs_stay_shared(device):
    x, residual, weight, dy = (torch.randn(s, device=device) for s in ((4, N), (4, N), (N,), (4, N)))
    clones = [torch._lazy_clone(t) for t in (x, residual, weight, dy)]
    cx, cr, cw, cdy = clones
    y, s = truenorm.fused_add_rms_norm(cx.requires_grad_(), cr, cw.requires_grad_())
    torch.autograd.grad((y, s), (cx, cw), (cdy, cdy))
    truenorm.layer_norm(cx.detach(), N, cw.detach(), cw.detach())
    assert all(torch._C._is_cow_tensor(t) for t in clones)
