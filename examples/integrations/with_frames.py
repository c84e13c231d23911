"""pandas, Polars, Arrow"""  # packages: pandas polars pyarrow

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from _tables import logits

import rhocal

values, labels = logits(1000, 3)
names = np.array(["ant", "bee", "cat"])

# begin
frame = pd.DataFrame(values, columns=names)
cal = rhocal.VectorScaling().fit(frame, names[labels])  # columns are matched by name
probs = cal.predict_proba(pl.DataFrame(values[:, ::-1], schema=["cat", "bee", "ant"]))
lists = pl.DataFrame({"logits": values.tolist()})
probs_of_lists = cal.predict_proba(lists["logits"])  # a column of lists is a matrix
probs_of_arrow = cal.predict_proba(pa.Table.from_pandas(frame))
# end

want = cal.predict_proba(frame)
for other in (probs, probs_of_lists, probs_of_arrow):
    assert np.abs(other - want).max() < 1e-6
