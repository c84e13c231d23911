"""A fit and a metric on Spark: partitions are processed where they are, and only their profiles and sums travel.

Needs `pip install rhocal pyspark pandas pyarrow` and Java; run it with `python examples/on_spark.py`.
"""

import os
import sys

import numpy as np
from pyspark.sql import SparkSession

import rhocal
from rhocal.integrations.spark import apply, spark_source

rng = np.random.default_rng(0)
truth = rng.normal(size=(3000, 100)) * 2
logits, labels = 2 * truth, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)  # over-confident by a factor of two

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need a Python that has rhocal
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = [(row.tolist(), int(label)) for row, label in zip(logits, labels, strict=True)]
frame = session.createDataFrame(rows, "logits array<double>, label int").repartition(3).cache()
source = spark_source(frame, labels="label")
cal = rhocal.TemperatureScaling().fit(source)

print(f"uncalibrated: ECE {rhocal.measure(source)['ece']:.4f}")
print(f"calibrated: ECE {rhocal.measure(source, calibrator=cal)['ece']:.4f}")
alone = rhocal.TemperatureScaling().fit(logits, labels)
print(f"temperature {cal.temperature_:.4f}, on one machine {alone.temperature_:.4f}")
print(apply(cal, frame).select("probs").count(), "rows with probabilities")
session.stop()
