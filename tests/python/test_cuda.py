"""What only a GPU can show: graphs, streams, devices. Skipped aloud where there is none."""

import collections
import ctypes

import pytest
import torch

import truenorm
from c_library import same_bits

pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() and truenorm._C.has_cuda()), reason="NO GPU or no CUDA backend: not tested"
)
# wide and few rows, narrow and many, and sizes whose weight gradients need the counters
SHAPES = [(4, 4096), (2048, 4096), (8192, 128), (300, 1000)]


def fresh(rows, n, dtype=torch.bfloat16):
    return [torch.randn(s, device="cuda").to(dtype) for s in ((rows, n), (rows, n), (n,), (n,), (rows, n), (rows, n))]


def step(x, residual, weight, bias, dy, ds):
    """Forward and backward of all three operations; the results in a list."""
    leaves = [t.detach().requires_grad_() for t in (x, residual, weight, bias)]
    x, residual, weight, bias = leaves
    y, s = truenorm.fused_add_rms_norm(x, residual, weight, bias)
    z = truenorm.layer_norm(s, s.shape[-1], weight, bias)
    u = truenorm.rms_norm(z, weight, offset=1.0, casting_mode="gemma")
    return [y, s, u, *torch.autograd.grad((y, s, u), leaves, (dy, ds, dy))]


def captured(given):
    """A graph of step on these very tensors, captured on a side stream, and its outputs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(*given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = step(*given)
    return graph, out


@pytest.mark.parametrize("rows, n", SHAPES)
def test_a_graph_follows_its_inputs(rows, n):
    given = fresh(rows, n)
    graph, out = captured(given)
    for _ in range(3):
        for t, new in zip(given, fresh(rows, n)):
            t.copy_(new)
        graph.replay()
        assert all(same_bits(a, b) for a, b in zip(out, step(*given)))


def test_capture_is_the_first_use_of_a_shape():
    given = fresh(517, 768)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(*given)
    graph.replay()
    assert all(same_bits(a, b) for a, b in zip(out, step(*given)))


def test_graphs_of_two_streams_at_once_and_eager_between():
    one, two = fresh(2048, 1024), fresh(2048, 1024)
    (graph1, out1), (graph2, out2) = captured(one), captured(two)
    want1, want2 = step(*one), step(*two)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    for _ in range(20):
        for stream, replay in zip(streams, (graph1.replay, graph2.replay, lambda: step(*one))):
            with torch.cuda.stream(stream):
                replay()
    torch.cuda.synchronize()
    assert all(same_bits(a, b) for a, b in zip(out1 + out2, want1 + want2))


def node_kinds(graph):
    """How many nodes of each kind a captured graph has, by cudaGraphNodeType."""
    with open("/proc/self/maps") as maps:
        library = next(line.split()[-1] for line in maps if "libcudart.so" in line)
    cudart = ctypes.CDLL(library)
    raw, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t()
    assert cudart.cudaGraphGetNodes(raw, None, ctypes.byref(count)) == 0
    nodes = (ctypes.c_void_p * count.value)()
    assert cudart.cudaGraphGetNodes(raw, nodes, ctypes.byref(count)) == 0
    kinds = collections.Counter()
    for node in nodes:
        kind = ctypes.c_int()
        assert cudart.cudaGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        kinds[kind.value] += 1
    return kinds


KERNEL = 0  # cudaGraphNodeTypeKernel


@pytest.mark.parametrize("rows, n", SHAPES)
def test_a_call_is_one_kernel_and_nothing_else(rows, n):
    x, residual, weight, bias, dy, ds = fresh(rows, n)
    leaves = [t.requires_grad_() for t in (x, residual, weight, bias)]
    calls = [
        (lambda: (truenorm.rms_norm(x, weight),), (dy,), [x, weight]),
        (lambda: truenorm.fused_add_rms_norm(x, residual, weight, bias), (dy, ds), leaves),
        (lambda: (truenorm.layer_norm(x, n, weight, bias),), (dy,), [x, weight, bias]),
    ]
    for forward, gradients, wanted in calls:
        torch.autograd.grad(forward(), wanted, gradients)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            outputs = forward()
            torch.autograd.grad(outputs, wanted, gradients)
        assert node_kinds(graph) == {KERNEL: 2}  # one forward, one backward


def test_make_graphed_callables():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(1024, device="cuda"))

        def forward(self, x, residual):
            return truenorm.fused_add_rms_norm(x, residual, self.weight)

    block = Block()
    sample = tuple(torch.randn(64, 1024, device="cuda", requires_grad=True) for _ in range(2))
    graphed = torch.cuda.make_graphed_callables(block, sample)
    for _ in range(3):
        x, r = (torch.randn(64, 1024, device="cuda", requires_grad=True) for _ in range(2))
        with torch.no_grad():
            block.weight.copy_(torch.randn(1024, device="cuda"))
        dy, ds = torch.randn(64, 1024, device="cuda"), torch.randn(64, 1024, device="cuda")
        y, s = graphed(x, r)
        got = torch.autograd.grad((y, s), (x, r, block.weight), (dy, ds))
        x2, r2, w2 = (t.detach().clone().requires_grad_() for t in (x, r, block.weight))
        y2, s2 = truenorm.fused_add_rms_norm(x2, r2, w2)
        want = torch.autograd.grad((y2, s2), (x2, r2, w2), (dy, ds))
        assert all(same_bits(a, b) for a, b in zip((y, s, *got), (y2, s2, *want)))


def test_two_streams_at_once_share_no_scratch():
    sets = [fresh(4096, 1024) for _ in range(2)]
    want = [step(*s) for s in sets]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in sets]
    for _ in range(10):
        got = []
        for stream, given in zip(streams, sets):
            with torch.cuda.stream(stream):
                got.append(step(*given))
        torch.cuda.synchronize()
        assert all(same_bits(a, b) for g, w in zip(got, want) for a, b in zip(g, w))


def test_a_slow_producer_is_waited_for():
    x = torch.zeros(1024, 4096, device="cuda")
    new = torch.randn_like(x)
    want = truenorm.rms_norm(new)
    torch.cuda._sleep(50_000_000)
    x.copy_(new)
    assert same_bits(truenorm.rms_norm(x), want)


def test_the_wrong_device_is_current():
    if torch.cuda.device_count() < 2:
        pytest.skip("FEWER THAN TWO GPUS: a wrong current device is not tested")
    given = fresh(300, 1000)
    want = step(*given)
    there = [t.to("cuda:1") for t in given]
    with torch.cuda.device(0):
        got = step(*there)
    assert all(t.device.index == 1 for t in got)
    assert all(same_bits(a, b) for a, b in zip(got, want))
    with pytest.raises(RuntimeError, match="weight: got a tensor on cuda:0; needs x's device, cuda:1"):
        truenorm.rms_norm(there[0], given[2])


def test_no_rows_launch_nothing_that_fails():
    x = torch.randn(0, 64, device="cuda", requires_grad=True)
    w = torch.randn(64, device="cuda", requires_grad=True)
    truenorm.rms_norm(x, w).sum().backward()
    torch.cuda.synchronize()
    assert torch.equal(w.grad, torch.zeros_like(w))


def test_more_than_2_31_elements():
    if torch.cuda.mem_get_info()[0] < 24 << 30:
        pytest.skip("less than 24 GiB of GPU memory are free")
    rows, n = 2**23 + 16, 256
    x = torch.zeros(rows, n, device="cuda", dtype=torch.bfloat16)
    x[-1] = torch.randn(n, device="cuda")
    x.requires_grad_()
    y = truenorm.rms_norm(x)
    last = x[-1:].detach().clone().requires_grad_()
    z = truenorm.rms_norm(last)
    assert same_bits(y[-1:], z)
    dy = torch.ones_like(y)
    dx = torch.autograd.grad(y, x, dy)[0]
    assert same_bits(dx[-1:], torch.autograd.grad(z, last, torch.ones_like(z))[0])
