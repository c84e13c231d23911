"""Maps as SQL give what Python gives, in DuckDB and SQLite; names and classes cannot break out of their quotes."""

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal.calibrators.portable import to_sql
from rhocal.calibrators.portable.dialects import DIALECTS
from rhocal.errors import InputError

duckdb = pytest.importorskip("duckdb")

METHODS = [
    "temperature", "rho-norm", "field", "platt", "beta", "isotonic", "histogram-binning", "vector", "svs", "svs:field",
]  # fmt: skip
Z, Y = synthetic(1500, 4, seed=3)


def hostile(n, m):
    """Rows of logits with ties, saturated and equal scores."""
    rng = np.random.default_rng(4)
    k = n // 5
    kinds = [rng.normal(size=(k, m)) * 3, np.round(rng.normal(size=(k, m))), rng.normal(size=(k, m)) * 300]
    kinds += [np.round(rng.normal(size=(k, m)) * 3) * 100, rng.normal(size=(k - 10, m)) + 500, np.zeros((10, m))]
    return np.concatenate(kinds)


def in_duckdb(query, frame, name="predictions"):
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("shown", frame)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM shown')  # noqa: S608
        return connection.execute(query).df()


def in_sqlite(query, frame, name="predictions"):
    with closing(sqlite3.connect(":memory:")) as connection:
        frame.to_sql(name, connection, index=False)
        return pd.read_sql_query(query, connection)


def check(cal, scores, run, dialect, columns=None):
    columns = columns or [f"z{k}" for k in range(np.shape(scores)[1])]
    frame = pd.DataFrame(scores, columns=columns).assign(id=np.arange(len(scores)))
    result = run(to_sql(cal, dialect, columns=columns, keep=["id"]), frame).sort_values("id")
    assert list(result) == ["id", *(f"prob_{name}" for name in cal.classes_), "predicted", "confidence"]
    want = cal.predict_proba(scores)
    np.testing.assert_allclose(result.iloc[:, 1:-2].to_numpy(float), want, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result["confidence"], want.max(axis=1), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(result["predicted"], cal.predict(scores))


@pytest.mark.parametrize("method", METHODS)
def test_databases_give_what_python_gives(method):
    cal = rhocal.calibrator(method).fit(Z, Y)
    check(cal, hostile(10_000, 4), in_duckdb, "duckdb")
    check(cal, hostile(1_000, 4), in_sqlite, "sqlite")


@pytest.mark.parametrize("method", ["temperature", "platt", "isotonic", "histogram-binning"])
def test_two_classes_in_one_column_and_in_two(method):
    margin, labels = Z[:, 1] - Z[:, 0], np.where(Y % 2, "yes", "no")
    cal = rhocal.calibrator(method).fit(margin, labels)
    scores = np.concatenate([margin, np.round(margin), margin * 100])
    check(cal, scores[:, None], in_duckdb, "duckdb", ["score"])
    check(cal, np.stack([-scores / 2, scores / 2], axis=1), in_duckdb, "duckdb")


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
def test_probabilities_with_zeros(kind):
    p = np.exp(hostile(2_000, 4) / 5)
    p = np.round(p / p.sum(axis=1, keepdims=True), 3)
    p /= p.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        scores = p if kind == "probs" else np.log(p)
    for method in ("platt", "vector"):
        cal = rhocal.calibrator(method).fit(scores[:1500], Y, kind=kind)
        check(cal, scores, in_duckdb, "duckdb")


def test_masked_classes():
    z = Z.copy()
    z[::3, 2] = -np.inf
    z[np.arange(len(z)) == Y, 2] = 0.0
    labels = np.where(np.isneginf(z[np.arange(len(z)), Y]), 0, Y)
    for method in ("temperature", "rho-norm", "vector", "platt"):
        check(rhocal.calibrator(method).fit(z, labels), z, in_duckdb, "duckdb")


def test_rows_that_cannot_be_calibrated_are_null():
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    rows = [[1, 2, 3, 4], [None, 2, 3, 4], [np.nan, 2, 3, 4], [np.inf, 2, 3, 4], [-np.inf] * 4, [-np.inf, 2, 3, 4]]
    frame = pd.DataFrame(rows, columns=list("abcd"), dtype="Float64").assign(id=range(len(rows)))
    for run, dialect in ((in_duckdb, "duckdb"), (in_sqlite, "sqlite")):
        given = frame if dialect == "duckdb" else frame.astype(dict.fromkeys("abcd", object)).where(frame.notna(), None)
        result = run(to_sql(cal, dialect, columns=list("abcd"), keep=["id"]), given).sort_values("id")
        assert result.drop(columns="id").isna().all(axis=1).tolist() == [False, True, True, True, True, False]
        assert not result.iloc[[0, 5]].isna().any(axis=None)
    probs = rhocal.TemperatureScaling().fit(np.full((8, 2), 0.5), [0, 1] * 4, kind="probs")
    frame = pd.DataFrame([[0.5, 0.5], [0.5, 0.6], [-0.5, 1.5]], columns=["a", "b"])
    result = in_duckdb(to_sql(probs, "duckdb", columns=["a", "b"]), frame)
    assert result["confidence"].isna().tolist() == [False, True, True]


def test_texts_in_sqlite_are_numbers_or_missing():
    cal = rhocal.TemperatureScaling().fit(Z[:, :2], Y % 2)
    cells = [1.5, 2, "1.5", "2", "", "abc", "1.5x", "nan", "1,5", b"1", None]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE predictions (a, b REAL)")
        connection.executemany("INSERT INTO predictions VALUES (?, ?)", [(cell, 0) for cell in cells])
        rows = connection.execute(to_sql(cal, "sqlite", columns=["a", "b"])).fetchall()
    want = cal.predict_proba(np.array([[1.5, 0], [2, 0]]))[:, 0]
    assert [row[0] for row in rows[:4]] == pytest.approx([*want, *want], abs=1e-12)
    assert [row for row in rows[4:] if set(row) != {None}] == []


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
def test_one_probability_is_valid_where_python_takes_it(kind):
    p = 1 / (1 + np.exp(Z[:, 0] - Z[:, 1]))
    cal = rhocal.calibrator("platt").fit(p if kind == "probs" else np.log(p), Y % 2, kind=kind)
    scores = [0.2, 0.0, 1.0, 1.0005, -1e-9, 0.5] if kind == "probs" else [-1.5, -1e3, 0.0, 1e-9, 0.5, -1e-9]
    for dialect, run in (("duckdb", in_duckdb), ("sqlite", in_sqlite)):
        result = run(to_sql(cal, dialect, columns=["s"]), pd.DataFrame({"s": scores}))["prob_1"].tolist()
        for score, got in zip(scores, result, strict=True):
            try:
                want = cal.predict_proba(np.array([score]))[0, 1]
            except InputError:
                want = None
            assert (got is None or np.isnan(got)) if want is None else got == pytest.approx(want, abs=1e-9), score


HOSTILE_NAMES = ['a"; DROP TABLE predictions; --', "b`c", "d'e\\", "{0} %s"]


@pytest.mark.parametrize(("run", "dialect"), [(in_duckdb, "duckdb"), (in_sqlite, "sqlite")])
def test_names_and_classes_stay_in_their_quotes(run, dialect):
    classes = np.array(["'; DROP TABLE x; --", 'say "hi"', "back\\slash", "{1} %d"])
    cal = rhocal.TemperatureScaling().fit(Z, classes[Y], classes=classes)
    table = 'my "table"; --'
    frame = pd.DataFrame(Z[:50], columns=HOSTILE_NAMES)
    query = to_sql(cal, dialect, table=table, columns=HOSTILE_NAMES, keep=HOSTILE_NAMES[:1])
    if dialect == "duckdb":
        with duckdb.connect() as connection:
            connection.register("shown", frame)
            connection.execute('CREATE TABLE "my ""table""; --" AS SELECT * FROM shown')
            result = connection.execute(query).df()
    else:
        result = run(query, frame, table)
    np.testing.assert_array_equal(result["predicted"], cal.predict(Z[:50]))
    assert list(result)[:2] == [HOSTILE_NAMES[0], "prob_'; DROP TABLE x; --"]


def test_quotes_of_the_other_dialects():
    assert DIALECTS["bigquery"].identifier("a`b\\c") == "`a\\`b\\\\c`"
    assert DIALECTS["spark"].identifier("a`b") == "`a``b`"
    assert DIALECTS["snowflake"].literal("it's \\ \n") == "'it\\'s \\\\ \\n'"
    assert DIALECTS["postgres"].literal("it's \\") == "'it''s \\'"
    assert DIALECTS["postgres"].table('a.b"c') == '"a"."b""c"'
    for dialect in DIALECTS.values():
        with pytest.raises(InputError, match="control"):
            dialect.identifier("a\nb")
        with pytest.raises(InputError, match="null character"):
            dialect.literal("a\0b")


def test_columns_are_matched_by_name():
    names = np.array(["ape", "bee", "cat", "dog"])
    frame = pd.DataFrame(Z, columns=names)[["dog", "ape", "cat", "bee"]]
    cal = rhocal.calibrator("vector").fit(frame, names[Y], classes=names)
    for columns in (None, ["dog", "ape", "cat", "bee"]):
        result = in_duckdb(to_sql(cal, "duckdb", columns=columns), frame)
        np.testing.assert_allclose(result.iloc[:, :4], cal.predict_proba(frame), atol=1e-9)
    with pytest.raises(InputError, match="not named as the classes"):
        to_sql(cal, "duckdb", columns=["dog", "ape", "x", "y"])


def test_what_cannot_be_written():
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    with pytest.raises(InputError, match="choose from duckdb, bigquery"):
        to_sql(cal, "oracle")
    with pytest.raises(InputError, match="4 classes and 3 columns"):
        to_sql(cal, "duckdb", columns=["a", "b", "c"])
    with pytest.raises(InputError, match="'predicted'"):
        to_sql(cal, "duckdb", keep=["Predicted"])
    many = rhocal.TemperatureScaling().fit(*synthetic(1000, 1000))
    with pytest.raises(InputError, match="few classes"):
        to_sql(many, "duckdb")
    assert "logit_3" in to_sql(cal, "duckdb")
