"""Spark"""  # packages: pyspark; needs: java

import os
import sys

import numpy as np
from _tables import logits

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from pyspark.sql import SparkSession

import rhocal

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
values, labels = logits()
rows = [(z.tolist(), int(y)) for z, y in zip(values, labels, strict=True)]
frame = session.createDataFrame(rows, "logits array<float>, label int").repartition(3).cache()

# begin
from rhocal.integrations.spark import apply, spark_source

source = spark_source(frame, logits="logits", labels="label")
cal = rhocal.RhoNormScaling().fit(source)
metrics = rhocal.measure(source, calibrator=cal)
with_probs = apply(cal, frame)  # one more column, lazily
# end

alone = rhocal.RhoNormScaling().fit(values, labels)
assert np.abs(cal.predict_proba(values) - alone.predict_proba(values)).max() < 1e-4
assert metrics["ece"] < 0.5 * rhocal.measure(values, labels)["ece"]
row = with_probs.first()
assert np.abs(np.array(row.probs) - cal.predict_proba(np.float32([row.logits]))[0]).max() < 1e-6
session.stop()
