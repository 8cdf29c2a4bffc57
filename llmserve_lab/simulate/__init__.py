"""What a machine that is not here would do, by formula."""

from llmserve_lab.simulate.estimate import Estimate, ModelSize, decode_estimate
from llmserve_lab.simulate.gpus import GPUS, Gpu

__all__ = ["GPUS", "Estimate", "Gpu", "ModelSize", "decode_estimate"]
