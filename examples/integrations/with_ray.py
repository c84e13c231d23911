"""Ray"""  # packages: ray

import os

import numpy as np
from _tables import logits

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this process alone
import ray

import rhocal

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
values, labels = logits()
dataset = ray.data.from_items([{"logits": z, "label": y} for z, y in zip(values, labels, strict=True)])

# begin
from rhocal.integrations.ray import apply, ray_source

source = ray_source(dataset, logits="logits", labels="label")
cal = rhocal.RhoNormScaling().fit(source)
metrics = rhocal.measure(source, calibrator=cal)
with_probs = apply(cal, dataset)  # one more column, lazily
# end

alone = rhocal.RhoNormScaling().fit(values, labels)
assert np.abs(cal.predict_proba(values) - alone.predict_proba(values)).max() < 1e-4
assert metrics["ece"] < 0.5 * rhocal.measure(values, labels)["ece"]
row = with_probs.take(1)[0]
assert np.abs(row["probs"] - cal.predict_proba(row["logits"][None])[0]).max() < 1e-6
ray.shutdown()
