"""What a machine that is not here would do: a floor by formula, or the engine's own scheduler on a
virtual clock."""

from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.simulate.arrivals import AtOnce, Fixed, Gamma, Poisson
from llmserve_lab.simulate.calibrate import calibrate
from llmserve_lab.simulate.costs import Costs
from llmserve_lab.simulate.deployment import Deployment, StepTime
from llmserve_lab.simulate.estimate import Estimate, decode_estimate
from llmserve_lab.simulate.gpus import GPUS, Gpu
from llmserve_lab.simulate.lengths import Constant, Empirical, LogNormal, Uniform
from llmserve_lab.simulate.live import run_live
from llmserve_lab.simulate.load_result import LoadResult, Outcome
from llmserve_lab.simulate.measured_machine import MeasuredMachine
from llmserve_lab.simulate.model_size import ModelSize
from llmserve_lab.simulate.replay import read_workload, write_workload
from llmserve_lab.simulate.shared_prefix import SharedPrefix
from llmserve_lab.simulate.simulator import Simulator
from llmserve_lab.simulate.slo import SLO
from llmserve_lab.simulate.this_machine import this_machine
from llmserve_lab.simulate.workload import Ask, Workload

__all__ = [
    "GPUS",
    "SLO",
    "Ask",
    "AtOnce",
    "Constant",
    "Costs",
    "Deployment",
    "Empirical",
    "Estimate",
    "Fixed",
    "Gamma",
    "Gpu",
    "LoadResult",
    "LogNormal",
    "MeasuredMachine",
    "ModelSize",
    "Outcome",
    "Poisson",
    "SharedPrefix",
    "Simulator",
    "StepLoad",
    "StepTime",
    "Uniform",
    "Workload",
    "calibrate",
    "decode_estimate",
    "read_workload",
    "run_live",
    "this_machine",
    "write_workload",
]
