"""A fit and a figure on Spark: blocks are worked on where they are, and only their profiles and sums travel.

Needs `pip install rhocal pyspark`; run it with `python examples/on_spark.py`.
"""

from operator import add

import numpy as np
from pyspark import SparkContext

import rhocal

rng = np.random.default_rng(0)
truth = [rng.normal(size=(500, 100)) * 2 for _ in range(6)]
blocks = [(2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)) for z in truth]  # twice too certain

spark = SparkContext("local[2]")
there = spark.parallelize(blocks, 3)

pilot = rhocal.data.predictions.Predictions.from_arrays(
    *(np.concatenate(part) for part in zip(*blocks[:2], strict=True))
)
plan = rhocal.plan_for(rhocal.TemperatureScaling(), pilot)
parts = there.map(lambda block: rhocal.profile_block(*block, plan)).collect()
calibrator = rhocal.TemperatureScaling().fit_profile(rhocal.Profile.concat(parts))

ece = rhocal.metrics.ece
before = there.map(lambda block: ece.of(*block, kind="logits")).reduce(add)
after = there.map(lambda block: ece.of(calibrator.transform(block[0]), block[1], kind="logits")).reduce(add)
print(f"uncalibrated: ECE {before.value:.4f}\ncalibrated: ECE {after.value:.4f}")
alone = rhocal.TemperatureScaling().fit(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
print(f"temperature {calibrator.temperature_:.4f}, on one machine {alone.temperature_:.4f}")
spark.stop()
