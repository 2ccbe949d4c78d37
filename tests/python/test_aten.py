"""aten's own operators routed to truenorm: the bits are ours while it lasts, PyTorch's before and after."""

import pytest
import torch
import torch.nn.functional as F

import truenorm
from c_library import same_bits
from truenorm.integrations import aten

N = 200


@pytest.fixture
def routed(device):
    """Routes the device under test, and always back."""
    with aten.enable(cpu=device == "cpu"):
        yield
    aten.disable()


def trained(f, *tensors):
    """f's result and gradients."""
    tensors = [None if t is None else t.detach().requires_grad_() for t in tensors]
    y = f(*tensors)
    y.backward(torch.linspace(-1, 1, y.numel(), device=y.device).view_as(y).to(y.dtype))
    return [y, *(None if t is None else t.grad for t in tensors)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(N,), (8, 25)])
@pytest.mark.parametrize("vectors", ["both", "weight", "none"])
def test_layer_norm_is_ours(dtype, shape, vectors, device, routed):
    x = torch.randn(6, *shape, device=device).to(dtype)
    w = torch.randn(shape, device=device).to(dtype) if vectors != "none" else None
    b = torch.randn(shape, device=device).to(dtype) if vectors == "both" else None
    got = trained(lambda x, w, b: F.layer_norm(x, shape, w, b), x, w, b)
    want = trained(lambda x, w, b: truenorm.layer_norm(x, shape, w, b), x, w, b)
    assert all(same_bits(a, c) for a, c in zip(got, want))


def test_the_rows_show_that_it_is_ours(device):
    # PyTorch's sums run in another order; over this many values some bit differs
    x = torch.randn(64, 4099, device=device)
    before = F.layer_norm(x, (4099,))
    with aten.enable(cpu=device == "cpu"):
        during = F.layer_norm(x, (4099,))
    after = F.layer_norm(x, (4099,))
    assert same_bits(during, truenorm.layer_norm(x, 4099))
    assert same_bits(before, after) and not same_bits(before, during)


def test_rms_norm_is_ours_on_cuda(device):
    if device == "cpu":
        pytest.skip("PyTorch's CPU has no such kernel")
    x, w = torch.randn(6, N, device=device), torch.randn(N, device=device)
    with aten.enable():
        for dtype in (torch.float32, torch.bfloat16):
            got = trained(lambda x, w: F.rms_norm(x, (N,), w), x.to(dtype), w.to(dtype))
            want = trained(lambda x, w: truenorm.rms_norm(x, w, eps=None, casting_mode="gemma"), x.to(dtype), w.to(dtype))
            assert all(same_bits(a, b) for a, b in zip(got, want))


def test_what_ours_do_not_serve_goes_to_pytorch(device):
    x = torch.randn(6, N, device=device, dtype=torch.float64)
    w = torch.randn(N, device=device, dtype=torch.float64)
    want = trained(lambda x, w: F.layer_norm(x, (N,), w), x, w)
    with aten.enable(cpu=True):
        got = trained(lambda x, w: F.layer_norm(x, (N,), w), x, w)
        with pytest.raises(RuntimeError, match="normalized_shape"):
            F.layer_norm(x.float(), (N - 1,))
        assert F.layer_norm(x.float()[:0], (N,)).shape == (0, N)
    assert all(torch.equal(a, b) for a, b in zip(got, want))


def test_a_backward_after_disable_uses_pytorchs(device):
    x = torch.randn(6, N, device=device, requires_grad=True)
    with aten.enable(cpu=device == "cpu"):
        y = F.layer_norm(x, (N,))
    dx = torch.autograd.grad(y.square().sum(), x)[0]
    torch.testing.assert_close(dx, torch.autograd.grad(F.layer_norm(x, (N,)).square().sum(), x)[0])


def test_a_backward_of_pytorchs_forward_while_enabled(device):
    x = torch.randn(6, N, device=device).bfloat16().requires_grad_()
    y = F.layer_norm(x, (N,))
    want = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)[0]
    with aten.enable(cpu=device == "cpu"):
        got = torch.autograd.grad(y, x, torch.ones_like(y))[0]
    torch.testing.assert_close(got, want)


def test_enable_nests_and_disable_ends_all():
    with aten.enable(cpu=True):
        with aten.enable(cpu=True):
            pass
        x = torch.randn(64, 4099)
        assert same_bits(F.layer_norm(x, (4099,)), truenorm.layer_norm(x, 4099))
        aten.disable()
        assert not same_bits(F.layer_norm(x, (4099,)), truenorm.layer_norm(x, 4099))


def test_modules_are_served_unchanged(device, routed):
    module = torch.nn.LayerNorm(4099, device=device)
    x = torch.randn(8, 4099, device=device)
    assert same_bits(module(x), truenorm.layer_norm(x, 4099, module.weight, module.bias))


def cpu_is_routed():
    x = torch.randn(64, 4099)
    return same_bits(F.layer_norm(x, (4099,)), truenorm.layer_norm(x, 4099))


def test_contexts_may_overlap():
    first, second = aten.enable(cpu=True), aten.enable(cpu=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert cpu_is_routed()
    second.__exit__(None, None, None)
    assert not cpu_is_routed()


def test_a_context_may_be_entered_again():
    context = aten.enable(cpu=True)
    for _ in range(2):
        with context:
            assert cpu_is_routed()
            with context:
                pass
            assert cpu_is_routed()
        assert not cpu_is_routed()
    with context:
        aten.disable()
    aten.enable(cpu=True)  # without a context: until disable()
    with context:
        pass
    assert cpu_is_routed()
    aten.disable()
    with context:
        assert cpu_is_routed()
    assert not cpu_is_routed()
