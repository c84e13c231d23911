"""Ray, on files"""  # packages: ray pyarrow

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _tables import logits

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this process alone
import ray

import rhocal

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
values, labels = logits()
for k, rows in enumerate(np.array_split(np.arange(len(labels)), 3)):
    pq.write_table(pa.table({"logits": values[rows].tolist(), "labels": labels[rows]}), f"part-{k}.parquet")

# begin
from rhocal.integrations.ray import RayExecutor

source = rhocal.stream("part-*.parquet").on(RayExecutor())  # files that all workers can read
cal = rhocal.RhoNormScaling().fit(source)
# end

alone = rhocal.RhoNormScaling().fit(values, labels)
assert np.abs(cal.predict_proba(values) - alone.predict_proba(values)).max() < 1e-4
ray.shutdown()
