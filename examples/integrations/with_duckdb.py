"""DuckDB (SQL)"""  # packages: duckdb

import duckdb
import numpy as np
import pandas as pd
from _tables import logits

import rhocal

values, labels = logits(1000, 3)
cal = rhocal.RhoNormScaling().fit(values, labels)
predictions = pd.DataFrame(values.astype(np.float64), columns=["a", "b", "c"]).assign(id=range(1000))

# begin
from rhocal.calibrators.portable import to_sql

query = to_sql(cal, "duckdb", table="predictions", columns=["a", "b", "c"], keep=["id"])
rows = duckdb.sql(query).df().sort_values("id")
# end

probs = rows[[name for name in rows.columns if name.startswith("p")][:3]].to_numpy()
assert np.abs(probs - cal.predict_proba(values.astype(np.float64))).max() < 1e-9
