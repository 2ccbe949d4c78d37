"""What PyTorch's autograd promises of an operation: which gradients, saved tensors, versions, threads, and refusals."""

import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import truenorm
from c_library import same_bits

N = 96


def tensors(*shapes, device, dtype=torch.float32, grad=True):
    return [torch.randn(shape, device=device).to(dtype).requires_grad_(grad) for shape in shapes]


def test_y_used_twice_and_a_sum_with_its_input(device):
    x, w = tensors((8, N), (N,), device=device)
    y = truenorm.rms_norm(x, w)
    dy = torch.randn_like(y)
    before = dy.clone()
    (x + y).backward(dy, retain_graph=True)
    first = x.grad.clone()
    x.grad = None
    (x + y).backward(dy)
    assert same_bits(dy, before)
    assert same_bits(first, x.grad)
    x2 = x.detach().requires_grad_()
    y2 = truenorm.rms_norm(x2, w.detach())
    (y2 * 2 + y2 * 3).sum().backward()
    one = torch.autograd.grad(truenorm.rms_norm(x2, w.detach()), x2, torch.full_like(y, 5.0))[0]
    assert same_bits(x2.grad, one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_add_with_each_use_of_its_outputs(dtype, device):
    x, r, w = tensors((8, N), (8, N), (N,), device=device, dtype=dtype)
    dy, ds = (torch.randn(8, N, device=device).to(dtype) for _ in range(2))

    def grads(outputs, incoming):
        return torch.autograd.grad(outputs, (x, r, w), incoming, allow_unused=True)

    y, s = truenorm.fused_add_rms_norm(x, r, w)
    dx, dr, dw = grads((y, s), (dy, ds))
    assert same_bits(dx, dr) and dx.data_ptr() != dr.data_ptr()
    y, s = truenorm.fused_add_rms_norm(x, r, w)
    only_y = grads(y, dy)
    plain = s.detach().requires_grad_()
    alone = torch.autograd.grad(truenorm.rms_norm(plain, w), (plain, w), dy)
    assert same_bits(only_y[0], alone[0]) and same_bits(only_y[2], alone[1])
    y, s = truenorm.fused_add_rms_norm(x, r, w)
    dx, dr, dw = grads(s, ds)
    assert same_bits(dx, ds) and same_bits(dr, ds)
    assert len({dx.data_ptr(), dr.data_ptr(), ds.data_ptr()}) == 3
    assert dw is None or not dw.any()


def test_only_the_residual_wants_a_gradient(device):
    x, r, w = tensors((4, N), (4, N), (N,), device=device)
    y, s = truenorm.fused_add_rms_norm(x.detach(), r, w.detach())
    (y.sum() + s.sum()).backward()
    y, s = truenorm.fused_add_rms_norm(x, r, w)
    (y.sum() + s.sum()).backward()
    assert same_bits(r.grad, 2 * x.grad)  # r's was summed twice


def test_a_sum_of_what_needs_no_gradient_needs_none(device):
    x, residual = torch.randn(2, 5, N, device=device)
    weight = torch.randn(N, device=device, requires_grad=True)
    y, s = truenorm.fused_add_rms_norm(x, residual, weight)
    assert y.requires_grad and not s.requires_grad and s.grad_fn is None
    (dweight,) = torch.autograd.grad(y, weight, torch.ones_like(y))
    (wanted,) = torch.autograd.grad(truenorm.rms_norm(s, weight), weight, torch.ones_like(y))
    assert same_bits(dweight, wanted)


def test_dx_may_be_changed_and_dr_stays(device):
    x, r = tensors((4, N), (4, N), device=device)
    y, s = truenorm.fused_add_rms_norm(x, r)
    (y.sum() + s.sum()).backward()
    before = r.grad.clone()
    x.grad.zero_()
    assert same_bits(r.grad, before)


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_none_exactly_where_nothing_is_asked(weight, bias, device):
    for frozen in range(8):
        x, w, b = tensors((4, N), (N,), (N,), device=device)
        given = [x, w if weight else None, b if bias else None]
        for i, t in enumerate(given):
            if t is not None:
                t.requires_grad_(not frozen >> i & 1)
        if not any(t is not None and t.requires_grad for t in given):
            continue
        truenorm.rms_norm(*given).sum().backward()
        for t in given:
            assert t is None or (t.grad is not None) == t.requires_grad


def test_a_frozen_weight_has_no_buffer(device):
    x, w = tensors((256, 1024), (1024,), device=device)

    def allocated(weight, asked):
        y = truenorm.rms_norm(x, weight)
        dy = torch.ones_like(y)
        with torch.profiler.profile(profile_memory=True) as profile:
            torch.autograd.grad(y, asked, dy)
        node = [e for e in profile.events() if e.name.endswith("RmsNormBackward")]
        return max(e.cpu_memory_usage + e.device_memory_usage for e in node)

    dx = x.numel() * x.element_size()
    assert allocated(w, (x, w)) > dx
    assert allocated(w.detach(), (x,)) == dx
    assert allocated(w, (x,)) == dx  # not frozen, but not asked for


def test_no_rows(device):
    x, w, b = tensors((0, N), (N,), (N,), device=device)
    for y in (truenorm.rms_norm(x, w, b), truenorm.layer_norm(x, N, w, b), truenorm.fused_add_rms_norm(x, x, w, b)[0]):
        assert y.shape == (0, N)
        x.grad = w.grad = b.grad = None
        y.sum().backward()
        assert x.grad.shape == (0, N)
        assert torch.equal(w.grad, torch.zeros_like(w)) and torch.equal(b.grad, torch.zeros_like(b))


def test_saved_tensor_hooks_see_what_is_saved_and_give_it_back(device):
    x, r, w = tensors((4, N), (4, N), (N,), device=device)
    reference = torch.autograd.grad(sum(o.sum() for o in truenorm.fused_add_rms_norm(x, r, w)), (x, r, w))
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t.detach().cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(device)):
        loss = sum(o.sum() for o in truenorm.fused_add_rms_norm(x, r, w))
    assert sorted(packed) == sorted([(4, N), (4,), (N,)])  # s, rstd, weight: neither x, r nor y
    assert all(same_bits(a, b) for a, b in zip(reference, torch.autograd.grad(loss, (x, r, w))))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant, device):
    x, w = tensors((4, N), (N,), device=device)

    def block(x):
        return truenorm.rms_norm(truenorm.rms_norm(x, w).sin(), w).cos()

    plain = torch.autograd.grad(block(x).sum(), (x, w))
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert same_bits(x.grad, plain[0]) and same_bits(w.grad, plain[1])


@pytest.mark.parametrize("changed", ["x", "w", "s"])
def test_a_saved_tensor_changed_in_place_is_an_error(changed, device):
    x, r, w = tensors((4, N), (4, N), (N,), device=device)
    if changed == "s":
        y, s = truenorm.fused_add_rms_norm(x, r, w)
        target = s
    else:
        y = truenorm.rms_norm(x, w)
        target = {"x": x, "w": w}[changed]
    with torch.no_grad():
        target.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_y_may_be_changed_in_place(device):
    x, w = tensors((4, N), (N,), device=device)
    truenorm.rms_norm(x, w).mul_(2).sum().backward()
    twice = torch.autograd.grad(truenorm.rms_norm(x, w), x, torch.full((4, N), 2.0, device=device))[0]
    assert same_bits(x.grad, twice)


def test_a_second_backward_needs_retain_graph(device):
    x, w = tensors((4, N), (N,), device=device)
    y = truenorm.rms_norm(x, w)
    first = torch.autograd.grad(y.sum(), (x, w), retain_graph=True)
    second = torch.autograd.grad(y.sum(), (x, w))
    assert all(same_bits(a, b) for a, b in zip(first, second))
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


@pytest.mark.parametrize("which", ["rms_norm", "layer_norm"])
def test_double_backward_is_refused_in_one_sentence(which, device):
    x, w = tensors((4, N), (N,), device=device)
    y = truenorm.rms_norm(x, w) if which == "rms_norm" else truenorm.layer_norm(x, N, w)
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=f"truenorm.{which}: a second derivative was asked for"):
        dx.sum().backward()


def test_create_graph_without_a_second_derivative_is_fine(device):
    x, w = tensors((4, N), (N,), device=device)
    plain = torch.autograd.grad(truenorm.rms_norm(x, w).sum(), x)[0]
    kept = torch.autograd.grad(truenorm.rms_norm(x, w).sum(), x, create_graph=True)[0]
    assert same_bits(plain, kept)


def test_forward_mode_is_refused(device):
    x, w = tensors((4, N), (N,), device=device, grad=False)
    with torch.autograd.forward_ad.dual_level():
        for arguments in (dict(x=torch.autograd.forward_ad.make_dual(x, x), weight=w),
                          dict(x=x, weight=torch.autograd.forward_ad.make_dual(w, w))):  # fmt: skip
            with pytest.raises(NotImplementedError, match="forward-mode"):
                truenorm.rms_norm(**arguments)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(lambda x: truenorm.rms_norm(x, w), (x,), (x,))
    y = truenorm.rms_norm(x.requires_grad_(), w)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="dy: got a forward-mode"):
        torch.autograd.grad(y, x, torch.autograd.forward_ad.make_dual(torch.ones_like(y), torch.ones_like(y)))


def test_functional_transforms_give_eager_gradients(device):
    x, w = tensors((4, N), (N,), device=device, grad=False)

    def loss(x, w):
        return truenorm.rms_norm(x, w).sin().sum()

    dx, dw = torch.func.grad(loss, (0, 1))(x, w)
    x_, w_ = x.clone().requires_grad_(), w.clone().requires_grad_()
    loss(x_, w_).backward()
    assert same_bits(dx, x_.grad) and same_bits(dw, w_.grad)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_gives_eager_results(device):
    x, w = tensors((3, 4, N), (N,), device=device, grad=False)
    assert same_bits(torch.func.vmap(lambda x: truenorm.rms_norm(x, w))(x), truenorm.rms_norm(x, w))


def test_anomaly_mode_names_the_forward(device):
    x, w = tensors((4, N), (N,), device=device)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.warns(UserWarning, match="Traceback of forward call"):
        y = truenorm.rms_norm(x, w)
        with pytest.raises(RuntimeError, match="RmsNormBackward"):
            y.backward(torch.full_like(y, float("nan")))


def test_backward_on_another_thread(device):
    x, w = tensors((16, N), (N,), device=device)
    expected = torch.autograd.grad(truenorm.rms_norm(x, w).sum(), (x, w))
    y = truenorm.rms_norm(x, w).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert same_bits(x.grad, expected[0]) and same_bits(w.grad, expected[1])


def test_threads_with_different_options_at_once(device):
    x, w = tensors((64, 1600), (1600,), device=device)
    expected = {o: torch.autograd.grad(truenorm.rms_norm(x, w, offset=o).sum(), (x, w)) for o in (0.0, 1.0)}
    failures = []

    def work(offset):
        for _ in range(10):
            got = torch.autograd.grad(truenorm.rms_norm(x, w, offset=offset).sum(), (x, w))
            if not all(same_bits(a, b) for a, b in zip(got, expected[offset])):
                failures.append(offset)

    threads = [threading.Thread(target=work, args=(float(i % 2),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class InPython(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, dy):
        return dy


def python_of_the_backward(function):
    """The Python functions that run while the gradient of function is computed, on the thread that asks for it."""
    x = torch.randn(4, N, requires_grad=True)  # the CPU's nodes run on that thread
    y, dy, seen = function(x), torch.ones(4, N), set()

    def note(frame, event, argument):
        if event == "call":
            seen.add(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)

    sys.setprofile(note)
    try:
        torch.autograd.grad(y, x, dy)
    finally:
        sys.setprofile(None)
    return seen


def test_no_python_runs_in_the_backward():
    weight = torch.ones(N, requires_grad=True)
    engine = python_of_the_backward(lambda x: x * 1)
    assert python_of_the_backward(lambda x: truenorm.rms_norm(x, weight)) == engine
    assert python_of_the_backward(lambda x: truenorm.layer_norm(x, N, weight, weight)) == engine
    assert python_of_the_backward(lambda x: truenorm.fused_add_rms_norm(x, x, weight)[0]) == engine
    assert python_of_the_backward(InPython.apply) > engine  # what this would look like


def test_hooks_on_tensors_and_on_the_node(device):
    x, w = tensors((4, N), (N,), device=device)
    y = truenorm.rms_norm(x, w)
    seen = []
    x.register_hook(lambda g: seen.append("x"))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(inputs)))
    assert y.grad_fn.name() == "RmsNormBackward"
    y.sum().backward()
    assert set(seen) == {"x", 4}


def test_inference_and_no_grad_modes_record_nothing(device):
    x, w = tensors((4, N), (N,), device=device)
    y = truenorm.rms_norm(x, w)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            z = truenorm.rms_norm(x, w)
        assert not z.requires_grad and same_bits(y, z)


def test_autocast_runs_in_the_type_that_arrives(device):
    x, w = tensors((4, N), (N,), device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert truenorm.rms_norm(x, w).dtype == torch.float32
        assert truenorm.rms_norm(x.bfloat16(), w).dtype == torch.bfloat16
        assert truenorm.layer_norm(x.bfloat16(), N, w).dtype == torch.bfloat16


def test_gradients_agree_with_differentiated_fp64(device):
    x, w, b = tensors((6, N), (N,), (N,), device=device)
    dy = torch.randn(6, N, device=device)
    ours = torch.autograd.grad(truenorm.layer_norm(x, N, w, b), (x, w, b), dy)
    theirs = torch.autograd.grad(F.layer_norm(x.double(), (N,), w.double(), b.double()), (x, w, b), dy.double())
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-5, atol=1e-5)
