"""DTensor: rows stay where they are, weight gradients are summed once; two processes on the CPU, with gloo."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

WORLD = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(rank, port, work, *arguments):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    try:
        work(*arguments)
    finally:
        dist.destroy_process_group()


def in_two_processes(work, *arguments):
    multiprocessing.spawn(start, (free_port(), work, *arguments), nprocs=WORLD)


def every_norm():
    """(name, function of x, weight, bias and residual, whether bias and residual are used)."""
    import truenorm

    return [
        ("rms_norm", lambda x, w, b, r: truenorm.rms_norm(x, w), False, False),
        ("rms_norm, bias", lambda x, w, b, r: truenorm.rms_norm(x, w, b), True, False),
        ("fused_add_rms_norm", lambda x, w, b, r: truenorm.fused_add_rms_norm(x, r, w), False, True),
        ("layer_norm", lambda x, w, b, r: truenorm.layer_norm(x, x.shape[-1], w, b), True, False),
    ]


def check_sharded(dim, dtype):
    """Of each norm: outputs and gradients of rows are one process's, bit for bit, and no more than local work is done."""
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode

    mesh = dist.init_device_mesh("cpu", (WORLD,))
    torch.manual_seed(3)
    shape = (4, 6, 48)
    x, residual, dy, ds = (torch.randn(shape).to(dtype) for _ in range(4))
    weight, bias = torch.randn(48).to(dtype), torch.randn(48).to(dtype)
    for name, function, has_bias, has_residual in every_norm():
        used = [True, True, has_bias, has_residual]
        whole = [t.clone().requires_grad_() for t in (x, weight, bias, residual)]
        outputs = function(*whole)
        outputs = outputs if has_residual else (outputs,)
        expected = torch.autograd.grad(outputs, [t for t, use in zip(whole, used) if use], (dy, ds)[: len(outputs)])

        rows, all_of_it = [Shard(dim)], [Replicate()]
        places = [rows, all_of_it, all_of_it, rows]
        parts = [distribute_tensor(t, mesh, p).requires_grad_() for t, p in zip((x, weight, bias, residual), places)]
        dy_parts = [distribute_tensor(t, mesh, rows) for t in (dy, ds)]
        with CommDebugMode() as traffic:
            sharded = function(*parts)
            sharded = sharded if has_residual else (sharded,)
            found = torch.autograd.grad(sharded, [t for t, use in zip(parts, used) if use], dy_parts[: len(sharded)])
        assert traffic.get_total_counts() == 0, f"{name}: {traffic.get_comm_counts()}"
        for got, want in zip(sharded, outputs):
            assert tuple(got.placements) == (Shard(dim),), name
            assert torch.equal(got.full_tensor(), want), name
        for t, got, want in zip([t for t, use in zip(whole, used) if use], found, expected):
            if t.dim() == 1:
                assert tuple(got.placements) == (Partial(),), name
                torch.testing.assert_close(got.full_tensor(), want, msg=f"{name}: the sum over ranks is another")
            else:
                assert tuple(got.placements) == (Shard(dim),), name
                assert torch.equal(got.full_tensor(), want), name
            assert got.dtype == dtype


def check_hidden_sharded():
    """x sharded over the normalised dimension, or partial sums, is redistributed: the result is right."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    import truenorm

    mesh = dist.init_device_mesh("cpu", (WORLD,))
    torch.manual_seed(4)
    x, weight = torch.randn(6, 32), torch.randn(32)
    replicated = distribute_tensor(weight, mesh, [Replicate()])
    y = truenorm.rms_norm(distribute_tensor(x, mesh, [Shard(1)]), replicated)
    assert torch.equal(y.full_tensor(), truenorm.rms_norm(x, weight))
    halves = DTensor.from_local(x / WORLD, mesh, [Partial()])
    assert torch.equal(truenorm.rms_norm(halves, replicated).full_tensor(), truenorm.rms_norm(x, weight))


def check_ranks_agree():
    """Sequence parallel: each rank's weight gradient, once it is reduced, is every other's."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    import truenorm

    mesh = dist.init_device_mesh("cpu", (WORLD,))
    torch.manual_seed(5)
    x, weight = torch.randn(2, 64, 96), torch.randn(96)
    w = distribute_tensor(weight, mesh, [Replicate()]).requires_grad_()
    truenorm.rms_norm(distribute_tensor(x, mesh, [Shard(1)]), w).sum().backward()
    mine = w.grad.full_tensor()
    all_of_them = [torch.empty_like(mine) for _ in range(WORLD)]
    dist.all_gather(all_of_them, mine)
    assert all(torch.equal(mine, other) for other in all_of_them)
    one = weight.clone().requires_grad_()
    truenorm.rms_norm(x, one).sum().backward()
    torch.testing.assert_close(mine, one.grad)


pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo")


def check_all():
    for dim in (0, 1):
        check_sharded(dim, torch.float32)
    check_hidden_sharded()
    check_ranks_agree()


def test_in_two_processes():
    """All in one pair of processes: starting them takes most of the time. The traceback names the check."""
    in_two_processes(check_all)
