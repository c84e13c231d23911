"""A fit and a figure on Ray: blocks are worked on where they are, and only their profiles and sums travel.

Needs `pip install rhocal ray`; run it with `python examples/on_ray.py`.
"""

from functools import reduce
from typing import Any

import numpy as np
import ray

import rhocal

rng = np.random.default_rng(0)
truth = [rng.normal(size=(500, 100)) * 2 for _ in range(6)]
blocks = [(2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)) for z in truth]  # twice too certain

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
there = [ray.put(block) for block in blocks]


@ray.remote
def profile(block: Any, plan: Any) -> Any:
    """What a block leaves behind for the fit."""
    return rhocal.profile_block(*block, plan)


@ray.remote
def sums(block: Any, calibrator: Any) -> Any:
    """The sums of a block, which add."""
    logits, labels = block
    return rhocal.metrics.ece.of(calibrator.transform(logits), labels, kind="logits")


pilot = rhocal.data.predictions.Predictions.from_arrays(
    *(np.concatenate(part) for part in zip(*blocks[:2], strict=True))
)
plan = rhocal.plan_for(rhocal.TemperatureScaling(), pilot)
parts = ray.get([profile.remote(block, plan) for block in there])
calibrator = rhocal.TemperatureScaling().fit_profile(rhocal.Profile.concat(parts))
before = rhocal.Identity().fit(*blocks[0])

for name, cal in (("uncalibrated", before), ("calibrated", calibrator)):
    total = reduce(lambda mine, more: mine + more, ray.get([sums.remote(block, cal) for block in there]))
    print(f"{name}: ECE {total.value:.4f}")
alone = rhocal.TemperatureScaling().fit(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
print(f"temperature {calibrator.temperature_:.4f}, on one machine {alone.temperature_:.4f}")
ray.shutdown()
