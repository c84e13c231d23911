"""Dask"""  # packages: dask distributed

import dask.array as da
import numpy as np
from _tables import logits
from dask.distributed import Client

import rhocal

values, labels = logits(4000)
dask_logits, dask_labels = da.from_array(values, chunks=(500, 10)), da.from_array(labels, chunks=500)

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None):
        # begin
        cal = rhocal.RhoNormScaling().fit(dask_logits, dask_labels)
        probs = cal.predict_proba(dask_logits)  # lazy
        metrics = rhocal.measure(dask_logits, dask_labels, calibrator=cal)
        # end
        alone = rhocal.RhoNormScaling().fit(values, labels)
        assert np.abs(probs.compute() - alone.predict_proba(values)).max() < 1e-4
        assert metrics["ece"] < 0.5 * rhocal.measure(values, labels)["ece"]
