"""Fits and metrics on Spark: the same numbers as in one process."""

import sys

import numpy as np
import pytest

import rhocal
from rhocal.errors import InputError

pyspark = pytest.importorskip("pyspark", reason="pip install pyspark, and Java 17; `make integrations` runs this")
from rhocal.integrations.spark import SparkExecutor, apply, spark_source  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of Spark


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    truth = 2 * rng.normal(size=(900, 80))
    return np.float32(2 * truth), (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)


@pytest.fixture(scope="module")
def frame(session, data):
    logits, labels = data
    rows = [(row.tolist(), int(label)) for row, label in zip(logits, labels, strict=True)]
    return session.createDataFrame(rows, "logits array<float>, label int").repartition(5).cache()


def test_a_frame_is_fitted_and_measured_as_an_array_is(frame, data):
    source = spark_source(frame, labels="label")
    assert source.n_rows == 900
    cal, alone = rhocal.RhoNormScaling().fit(source), rhocal.RhoNormScaling().fit(*data)
    np.testing.assert_allclose(cal.predict_proba(data[0]), alone.predict_proba(data[0]), atol=1e-5)
    assert rhocal.measure(source, kind="logits") == pytest.approx(rhocal.measure(*data, kind="logits"), rel=1e-9)
    rows = apply(cal, frame).toPandas()
    np.testing.assert_allclose(np.stack(rows["probs"]), cal.predict_proba(np.stack(rows["logits"])), atol=1e-7)


def test_vectors_of_spark_ml_and_columns_by_name(session):
    from pyspark.ml.linalg import Vectors

    rng = np.random.default_rng(2)
    truth = rng.normal(size=(300, 3))
    names, logits = np.array(["a", "b", "c"]), 3 * truth
    labels = names[(truth + rng.gumbel(size=truth.shape)).argmax(axis=1)]
    alone = rhocal.VectorScaling().fit(logits, labels)
    rows = [(Vectors.dense(z), *z.tolist(), label) for z, label in zip(logits, labels.tolist(), strict=True)]
    frame = session.createDataFrame(rows, ["rawPrediction", "a", "b", "c", "y"]).repartition(2).cache()
    cal = rhocal.VectorScaling().fit(spark_source(frame, logits="rawPrediction", labels="y"))
    np.testing.assert_allclose(cal.predict_proba(logits), alone.predict_proba(logits), atol=1e-6)
    named = rhocal.VectorScaling().fit(spark_source(frame, logits=("c", "b", "a"), labels="y"), classes=list(names))
    rows = apply(named, frame, logits=("b", "c", "a"), write="predicted").toPandas()
    assert list(rows["predicted"]) == list(alone.predict(np.stack(rows["rawPrediction"].map(lambda v: v.toArray()))))


def test_files(session, data, tmp_path):
    for k, rows in enumerate(np.array_split(np.arange(900), 3)):
        np.savez(tmp_path / f"part-{k}.npz", logits=data[0][rows], labels=data[1][rows])
    source = rhocal.stream(str(tmp_path / "part-*.npz")).on(SparkExecutor(session))
    assert rhocal.TemperatureScaling().fit(source).temperature_ == pytest.approx(
        rhocal.TemperatureScaling().fit(*data).temperature_, rel=1e-4
    )
    assert rhocal.measure(source, kind="logits") == pytest.approx(rhocal.measure(*data, kind="logits"), rel=1e-9)


def test_errors_name_the_partition(session):
    rows = [([1.0, 2.0, 3.0], 0), ([1.0, float("nan"), 3.0], 1), ([1.0, 2.0, 0.5], 0)]
    frame = session.createDataFrame(rows, "logits array<float>, labels int").coalesce(1)
    with pytest.raises(InputError, match=r"partition 0 .*NaN"):
        rhocal.TemperatureScaling().fit(spark_source(frame))
    ragged = session.createDataFrame([([1.0, 2.0], 0), ([1.0], 1)], "logits array<float>, labels int").coalesce(1)
    with pytest.raises(InputError, match="one list of numbers for each sample"):
        rhocal.TemperatureScaling().fit(spark_source(ragged))
    with pytest.raises(InputError, match="no column 'label'; there are logits, labels"):
        spark_source(frame, labels="label")
