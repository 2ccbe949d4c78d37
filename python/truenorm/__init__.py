"""RMSNorm, residual-add + RMSNorm and LayerNorm for PyTorch, forward and backward, with the same bits everywhere."""

from truenorm import nn
from truenorm._torch import _C
from truenorm.functional import fused_add_rms_norm, layer_norm, rms_norm

__version__ = _C.version()
__all__ = ["fused_add_rms_norm", "layer_norm", "nn", "rms_norm"]
