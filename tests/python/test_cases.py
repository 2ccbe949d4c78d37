"""The kinds of faults that published normalisation libraries had, seen from Python."""

import multiprocessing

import pytest
import torch

import truenorm
from c_library import expected, same_bits

# ---- Offset and cast order


@pytest.mark.parametrize("value", [0.00390625, 15.8125, 0.003, 0.0])
def test_the_offset_is_added_in_fp32(value, device):
    x = torch.randn(4, 128, device=device).bfloat16().requires_grad_()
    w = torch.full((128,), value, device=device).bfloat16()
    exact = (w.float() + 1).requires_grad_()
    y = truenorm.rms_norm(x, w, offset=1.0, casting_mode="gemma")
    z = truenorm.rms_norm(x, exact, casting_mode="gemma")
    assert same_bits(y, z)
    dy = torch.randn_like(y)
    assert same_bits(torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(z, x, dy)[0])


@pytest.mark.parametrize("n", [3072, 16384])
@pytest.mark.parametrize("casting_mode", ["llama", "gemma", "none"])
def test_fp32_weight_over_bf16_rows(n, casting_mode, device):
    x, w = torch.randn(2, n, device=device).bfloat16(), torch.randn(n, device=device)
    y = truenorm.rms_norm(x, w, casting_mode=casting_mode)
    rounding = int(casting_mode == "llama")
    assert y.dtype == torch.bfloat16
    assert same_bits(y, expected(1, x, None, w, None, None, None, eps=1e-6, offset=0.0, rounding=rounding)["y"])
    assert truenorm.rms_norm(x, w, casting_mode=casting_mode, out_dtype=torch.float32).dtype == torch.float32


def test_a_sum_that_nearly_cancels(device):
    x = torch.randn(8, 4096, device=device).bfloat16()
    r = (-x.float() * 1.003).bfloat16()
    y, s = truenorm.fused_add_rms_norm(x, r)
    assert same_bits(s, (x.float() + r.float()).bfloat16())
    assert same_bits(y, truenorm.rms_norm(s))


def test_offsets_in_turn(device):
    x, w = torch.randn(4, 256, device=device), torch.randn(256, device=device)
    results = [truenorm.rms_norm(x, w, offset=o) for o in (0.0, 1.0, 0.0)]
    assert same_bits(results[0], results[2]) and not same_bits(results[0], results[1])


# ---- Sizes


@pytest.mark.parametrize("n", [1, 2, 3, 7, 17, 63, 64, 127, 128, 513, 1600, 2049, 3584, 7168, 16384, 65537, 131072])
def test_each_size(n, device):
    x, dy = (torch.randn(3, n, device=device).bfloat16() for _ in range(2))
    w = torch.randn(n, device=device).bfloat16()
    want = expected(1, x, None, w, None, dy, None, eps=1e-6, offset=0.0, rounding=1)
    x.requires_grad_(), w.requires_grad_()
    y = truenorm.rms_norm(x, w)
    y.backward(dy)
    assert same_bits(y, want["y"]) and same_bits(x.grad, want["dx"]) and same_bits(w.grad, want["dweight"])


@pytest.mark.parametrize("rows", [65535, 65537])
def test_many_rows(rows, device):
    x = torch.zeros(rows, 8, device=device)
    x[-1] = torch.arange(8.0)
    assert same_bits(truenorm.rms_norm(x)[-1:], truenorm.rms_norm(x[-1:]))


def test_a_row_is_the_same_in_every_batch(device):
    x, w = torch.randn(1025, 48, device=device), torch.randn(48, device=device)
    whole = truenorm.layer_norm(x, 48, w)
    assert all(same_bits(whole[i : i + k], truenorm.layer_norm(x[i : i + k], 48, w)) for i, k in ((0, 1), (7, 100), (1024, 1)))


def test_a_stride_beyond_32_bits():
    # two rows 2^31 elements apart; the memory between them is never touched, so it costs none
    stride = 2**31
    try:
        buffer = torch.empty(stride + 64, dtype=torch.bfloat16)
    except RuntimeError:
        pytest.skip("no address space for 4 GiB")
    x = buffer.as_strided((2, 64), (stride, 1))
    x[:] = torch.randn(2, 64)
    assert same_bits(truenorm.rms_norm(x), truenorm.rms_norm(x.clone()))


# ---- Range


def test_fp16_rows_of_thousands(device):
    for scale in (300.0, 8000.0):
        x = (torch.randn(4, 4096, device=device) * scale).clamp(-60000, 60000).half()
        want = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
        torch.testing.assert_close(truenorm.rms_norm(x).double(), want, rtol=2**-10, atol=2**-14)


def test_zero_and_constant_rows(device):
    zero = torch.zeros(3, 64, device=device).half()
    bias = torch.randn(64, device=device).half()
    assert not truenorm.rms_norm(zero, eps=1e-12).any()
    assert same_bits(truenorm.layer_norm(zero + 7, 64, None, bias), bias.expand(3, 64))


def test_layer_norm_far_from_zero(device):
    for x in (torch.randn(4, 1000) + 2000, torch.randn(4, 32768) * 0.01 + 100, (1e4 + torch.arange(16.0) * 1e-3)[None]):
        x = x.to(device)
        want = torch.nn.functional.layer_norm(x.double(), x.shape[-1:])
        mean_in_fp32 = float(x.abs().max() * 2**-23 / x.double().std())  # half a unit of the mean, over the spread
        torch.testing.assert_close(truenorm.layer_norm(x, x.shape[-1]).double(), want, rtol=1e-4, atol=mean_in_fp32)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_row_stays_alone(value, device):
    x = torch.randn(5, 300, device=device)
    clean = truenorm.rms_norm(x)
    x[2, 7] = value
    dirty = truenorm.rms_norm(x)
    keep = [0, 1, 3, 4]
    assert same_bits(clean[keep], dirty[keep]) and dirty[2].isnan().any()


# ---- Process


def _child(connection, x, w):
    # nothing of PyTorch's that runs in parallel: its OpenMP waits for ever for the threads that a fork leaves behind
    connection.send(truenorm.rms_norm(x, w).numpy().tobytes())


def test_a_forked_child_has_threads_of_its_own():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    x, w = torch.randn(4096, 512), torch.randn(512)
    want = truenorm.rms_norm(x, w).numpy().tobytes()  # the pool exists
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(there, x, w), daemon=True)
    child.start()
    try:
        assert here.poll(30), "the child hangs"
        assert here.recv() == want
        assert truenorm.rms_norm(x, w).numpy().tobytes() == want
    finally:
        child.kill()
        torch.set_num_threads(before)
