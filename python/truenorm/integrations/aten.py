"""PyTorch's own operators served by truenorm, so that unmodified models use it.

While enabled, on CUDA (and on the CPU where asked), `F.layer_norm` and `nn.LayerNorm` (aten::native_layer_norm and its
backward), and on CUDA also `F.rms_norm` and `nn.RMSNorm` (aten::_fused_rms_norm and its backward) run truenorm's
kernels. What these do not serve (float64, complex numbers, statistics of another forward) goes to PyTorch's own.

RMSNorm rounds once, as PyTorch's kernel does; without an eps it takes FP32's, as PyTorch does. On the CPU PyTorch composes
F.rms_norm of elementary operators: it stays as it is. Under torch.compile PyTorch decomposes these operators itself.
"""

from __future__ import annotations

import threading

from truenorm._torch import _C

__all__ = ["disable", "enable"]

# A device is routed while anyone holds it. Plain enable() holds until disable(), which ends all holds of before: these
# have the number that _period had.
_lock = threading.Lock()
_holds = {"cuda": 0, "cpu": 0}
_period = 0


class _Enabled:
    """What enable() returns: as a context manager, leaving it gives up what this call holds.

    enable() has switched on already, so the first entry takes that hold over; any later entry takes one of its own.
    """

    def __init__(self, devices: list[str]):
        self._devices = devices
        self._unentered: int | None = _hold(devices)
        self._entered: list[int] = []

    def __enter__(self) -> None:
        with _lock:
            held, self._unentered = self._unentered, None
            current = held == _period
        self._entered.append(held if current else _hold(self._devices))

    def __exit__(self, *_) -> None:
        _release(self._devices, self._entered.pop())


def _hold(devices: list[str]) -> int:
    with _lock:
        for device in devices:
            _C.route_aten(device, True)
            _holds[device] += 1
        return _period


def _release(devices: list[str], period: int) -> None:
    with _lock:
        if period != _period:
            return
        for device in devices:
            _holds[device] -= 1
            if _holds[device] == 0:
                _C.route_aten(device, False)


def enable(*, cpu: bool = False) -> _Enabled:
    """Routes aten's normalisations to truenorm, for the whole process.

    Args:
        cpu: the CPU's too. Its saved statistics are then FP32 also for 16-bit tensors, where PyTorch's are 16-bit: a
            backward whose forward was run while this was on must run while it is on.

    Returns:
        An object for `with`, after which the routing lasts only while another call asks for it: contexts may nest and
        overlap in any order, in any thread. Without `with`, disable() ends it.
    """
    return _Enabled((["cuda"] if _C.has_cuda() else []) + (["cpu"] if cpu else []))


def disable() -> None:
    """Goes back to PyTorch's own kernels everywhere, whoever had enabled ours. Allowed at any time."""
    global _period
    with _lock:
        _period += 1
        for device in _holds:
            _holds[device] = 0
            _C.route_aten(device, False)
