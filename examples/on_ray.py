"""A fit and a metric on Ray: blocks are processed where they are, and only their profiles and sums travel.

Needs `pip install rhocal ray`; run it with `python examples/on_ray.py`.
"""

import os

import numpy as np
import ray

import rhocal
from rhocal.integrations.ray import ray_source

rng = np.random.default_rng(0)
truth = [rng.normal(size=(500, 100)) * 2 for _ in range(6)]
blocks = [(2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)) for z in truth]  # over-confident by a factor of two

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this process alone
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
source = ray_source([ray.put(block) for block in blocks])
cal = rhocal.TemperatureScaling().fit(source)

print(f"uncalibrated: ECE {rhocal.measure(source)['ece']:.4f}")
print(f"calibrated: ECE {rhocal.measure(source, calibrator=cal)['ece']:.4f}")
alone = rhocal.TemperatureScaling().fit(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
print(f"temperature {cal.temperature_:.4f}, on one machine {alone.temperature_:.4f}")
ray.shutdown()
