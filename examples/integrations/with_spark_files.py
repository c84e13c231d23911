"""Spark, on vectors and files"""  # packages: pyspark pyarrow; needs: java

import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _tables import logits

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

import rhocal

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
values, labels = logits()
for k, rows in enumerate(np.array_split(np.arange(len(labels)), 3)):
    pq.write_table(pa.table({"logits": values[rows].tolist(), "labels": labels[rows]}), f"part-{k}.parquet")
rows = [(Vectors.dense(z.tolist()), int(y)) for z, y in zip(values, labels, strict=True)]
predictions = session.createDataFrame(rows, ["rawPrediction", "label"]).repartition(3).cache()

# begin
from rhocal.integrations.spark import SparkExecutor, apply, spark_source

source = spark_source(predictions, logits="rawPrediction", labels="label")  # a vector, as models of Spark ML give it
cal = rhocal.RhoNormScaling().fit(source)
with_probs = apply(cal, predictions, logits="rawPrediction")
files = rhocal.stream("part-*.parquet").on(SparkExecutor(session))  # files that all workers can read
cal_of_files = rhocal.RhoNormScaling().fit(files)
# end

alone = rhocal.RhoNormScaling().fit(values, labels)
for fitted in (cal, cal_of_files):
    assert np.abs(fitted.predict_proba(values) - alone.predict_proba(values)).max() < 1e-4
row = with_probs.first()
assert np.abs(np.array(row.probs) - cal.predict_proba(np.array(row.rawPrediction)[None])[0]).max() < 1e-6
session.stop()
