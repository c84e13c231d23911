"""Dask arrays and frames as filters leave them: unknown and empty chunks; reports of several chunks."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal.errors import InputError

Z, Y = synthetic(300, 3)
NAMES = np.array(["cat", "dog", "ox"])
EVEN = np.arange(300) % 2 == 0


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.usefixtures("few_rows")
def test_labels_of_unknown_chunk_sizes():
    kept = EVEN & (np.arange(300) >= 100)
    scores = da.from_array(Z, chunks=(100, 2))[da.from_array(kept, chunks=100)]
    labels = da.from_array(Y, chunks=60)[da.from_array(kept, chunks=60)]
    fitted = rhocal.TemperatureScaling().fit(scores, labels)
    expected = rhocal.TemperatureScaling().fit(Z[kept], Y[kept])
    assert fitted.temperature_ == pytest.approx(expected.temperature_, rel=1e-4)
    assert rhocal.measure(scores, labels, kind="logits") == pytest.approx(
        rhocal.measure(Z[kept], Y[kept], kind="logits")
    )
    np.testing.assert_array_equal(expected.predict(scores).compute(), expected.predict(Z[kept]))


@pytest.mark.usefixtures("few_rows")
def test_empty_partitions():
    frame = pd.DataFrame(Z, columns=NAMES).assign(k=np.arange(300))
    late = dd.from_pandas(frame, npartitions=4)
    late = late[late.k >= 100].drop(columns="k")
    cal = rhocal.VectorScaling().fit(frame[NAMES], NAMES[Y])
    np.testing.assert_array_equal(cal.predict_proba(late).compute(), cal.predict_proba(Z[100:]))
    np.testing.assert_array_equal(cal.predict(late).compute(), cal.predict(Z[100:]))
    assert rhocal.TemperatureScaling().fit(late, NAMES[Y[100:]]).classes_.tolist() == NAMES.tolist()
    assert rhocal.evaluate(late, NAMES[Y[100:]], kind="logits").metrics()["n_samples"] == 200
    empty = da.from_array(Z, chunks=((0, 300), 3))
    np.testing.assert_array_equal(cal.predict_proba(empty).compute(), cal.predict_proba(Z))


def test_reports_and_plots_of_several_chunks_and_of_streams():
    in_memory = rhocal.report(Z, Y, kind="logits").to_frame()
    chunked = da.from_array(Z, chunks=(120, 3))
    blocks = rhocal.stream([(Z[:170], Y[:170]), (Z[170:], Y[170:])])
    for arguments in ((chunked, Y), (blocks,)):
        pd.testing.assert_frame_equal(rhocal.report(*arguments, kind="logits").to_frame(), in_memory)
    assert rhocal.plot(chunked, Y, kind="logits").get_xlabel() == "confidence"


def test_lists_that_dask_turned_into_texts():
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    with dask.config.set({"dataframe.convert-string": True}):
        texts = dd.from_pandas(pd.Series(list(Z)), npartitions=3)
    for use in (cal.predict_proba, lambda scores: rhocal.TemperatureScaling().fit(scores, Y)):
        for scores in (texts, texts.to_frame("z")):
            with pytest.raises(InputError, match=r"convert-string': False"):
                use(scores)
