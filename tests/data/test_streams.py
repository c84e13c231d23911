"""Files larger than memory: every format, once over, the same answers as in memory."""

import dask.array as da
import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from safetensors.numpy import save_file

import rhocal
from helpers import as_parquet, real, synthetic, uneven
from rhocal.calibrators import fitting
from rhocal.data import files, sampling, sources
from rhocal.data.formats import base
from rhocal.data.predictions import Predictions
from rhocal.errors import FileError, InputError, SubsampleWarning
from rhocal.evaluation import measure
from rhocal.metrics import CORE, METRICS
from rhocal.numerics.special import widened


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that a small file has many."""
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 20_000)
    monkeypatch.setattr(sampling, "PILOT_ENTRIES", 40_000)


@pytest.fixture(scope="module")
def data():
    return uneven(1500, 100, np.float16)


def write(kind, folder, logits, labels):
    """A source of that kind, and what to say beside it."""
    path = folder / f"data.{kind}"
    if kind == "npy":
        np.save(path, logits)
        np.save(folder / "labels.npy", labels)
        return path, {"labels": folder / "labels.npy"}
    if kind == "npz":
        np.savez(path, logits=logits, labels=labels)
    elif kind == "compressed":
        path = folder / "data.npz"
        np.savez_compressed(path, logits=logits, labels=labels)
    elif kind == "safetensors":
        save_file({"labels": labels, "logits": logits}, path)
    elif kind == "parquet":
        as_parquet(path, logits.astype(np.float32), labels)
    elif kind == "zarr":
        store = zarr.open_group(str(path), mode="w")
        store.create_array("logits", data=logits, chunks=(200, 100))
        store.create_array("labels", data=labels)
    elif kind == "folder":
        for k, part in enumerate(np.array_split(np.arange(len(labels)), 4)):
            as_parquet(folder / f"part-{k}.parquet", logits[part].astype(np.float32), labels[part])
        return folder / "part-*.parquet", {}
    return path, {}


def alike(cal, same, logits, rtol=2e-5):
    """Scales, not parameters: γ and β trade places along a flat valley of the objective."""
    np.testing.assert_allclose(cal.scale(logits), same.scale(logits), rtol=rtol)


KINDS = ["npy", "npz", "compressed", "safetensors", "parquet", "zarr", "folder"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_fit_in_memory(kind, data, tmp_path):
    logits, labels = data
    path, spec = write(kind, tmp_path, logits, labels)
    stream = rhocal.stream(path, **spec)
    assert len(stream.blocks) > 3
    cal = rhocal.RhoNormScaling().fit(stream)
    same = rhocal.RhoNormScaling().fit(logits, labels)
    assert cal.rho_ == same.rho_
    alike(cal, same, logits)
    width = 4 if kind in {"parquet", "folder"} else 2
    assert stream.bytes_read == logits.size * width  # each byte once


@pytest.mark.parametrize("method", ["temperature", "temperature-avuc", "rho-norm", "rho-norm-paper", "field"])
def test_scale_methods_on_a_real_network(method, tmp_path):
    logits, labels, test, _ = real("cifar100_resnet56")
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    options = {"n_steps": 200} if method == "rho-norm-paper" else {}
    stream = rhocal.stream(tmp_path / "z.npz")
    cal = rhocal.calibrator(method, **options).fit(stream)
    same = rhocal.calibrator(method, **options).fit(logits, labels)
    assert stream.bytes_read == logits.nbytes
    assert np.abs(cal.predict_proba(test) - same.predict_proba(test)).max() < 1e-4


def test_few_classes_are_exact():
    logits, labels = synthetic(900, 5)
    weights = np.random.default_rng(0).uniform(0, 2, 900)
    parts = [(logits[k : k + 100], labels[k : k + 100], weights[k : k + 100]) for k in range(0, 900, 100)]
    cal = rhocal.RhoNormScaling().fit(rhocal.stream(iter(parts)))
    same = rhocal.RhoNormScaling().fit(logits, labels, weights)
    assert (cal.gamma_, cal.beta_) == pytest.approx((same.gamma_, same.beta_), rel=1e-9)


def test_samples_in_the_order_of_their_classes(data, tmp_path):
    logits, labels = data
    order = np.argsort(labels, kind="stable")
    np.savez(tmp_path / "z.npz", logits=logits[order], labels=labels[order])
    cal = rhocal.RhoNormScaling().fit(rhocal.stream(tmp_path / "z.npz"))
    alike(cal, rhocal.RhoNormScaling().fit(logits, labels), logits)


def test_a_misleading_beginning_is_seen_and_the_file_read_again(data, tmp_path, monkeypatch):
    logits, labels = data
    mixed = np.concatenate([logits[:300], 6 * logits[300:].astype(np.float32)])  # the first rows are no guide
    same = rhocal.TemperatureScaling().fit(mixed, labels)
    parts = [(mixed[k : k + 100], labels[k : k + 100]) for k in range(0, 1500, 100)]
    alike(rhocal.TemperatureScaling().fit(rhocal.stream(iter(parts))), same, mixed, rtol=1e-4)  # in a wide table
    wild = [(logits[k : k + 100] * (1.0 if k < 500 else 300.0), labels[k : k + 100]) for k in range(0, 1500, 100)]
    with pytest.raises(InputError, match="random order"):
        rhocal.TemperatureScaling().fit(rhocal.stream(iter(wild)))
    np.savez(tmp_path / "z.npz", logits=mixed, labels=labels)
    everywhere = rhocal.stream(tmp_path / "z.npz")
    alike(rhocal.TemperatureScaling().fit(everywhere), same, mixed)
    assert everywhere.bytes_read == mixed.nbytes
    monkeypatch.setattr(sources, "pilot_blocks", lambda _: [0])
    twice = rhocal.stream(tmp_path / "z.npz")
    alike(rhocal.TemperatureScaling().fit(twice), same, mixed)
    assert twice.bytes_read == 2 * mixed.nbytes


def test_half_precision_is_widened_exactly():
    every = np.arange(65536, dtype=np.uint16)
    np.testing.assert_array_equal(widened(every.view(np.float16)), every.view(np.float16).astype(np.float32))
    finite = every.view(np.float16)[np.isfinite(every.view(np.float16))]
    assert (widened(finite).view(np.int32) == finite.astype(np.float32).view(np.int32)).all()  # the sign of zero too
    np.testing.assert_array_equal(widened(every), every.view(ml_dtypes.bfloat16).astype(np.float32))


def test_bfloat16_on_disk(data, tmp_path):
    logits, labels = data
    short = logits.astype(ml_dtypes.bfloat16)
    save_file({"logits": short, "labels": labels}, tmp_path / "z.safetensors")
    cal = rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "z.safetensors"))
    same = rhocal.TemperatureScaling().fit(short.astype(np.float32), labels)
    assert cal.temperature_ == pytest.approx(same.temperature_, rel=1e-5)


def test_bfloat16_is_read_in_every_way(data, tmp_path):
    """NumPy does not know the type: .npy and .npz hold it as two bytes without a meaning."""
    logits, labels = data
    short = logits.astype(ml_dtypes.bfloat16)
    save_file({"logits": short, "labels": labels}, tmp_path / "z.safetensors")
    np.savez(tmp_path / "z.npz", logits=short, labels=labels)
    np.save(tmp_path / "z.npy", short)
    np.save(tmp_path / "y.npy", labels)
    for name, beside in (("z.safetensors", None), ("z.npz", None), ("z.npy", tmp_path / "y.npy")):
        split = files.read(tmp_path / name, labels=beside).calibration_set()
        np.testing.assert_array_equal(split.scores, short.astype(np.float32))
        stream = rhocal.stream(tmp_path / name, labels=beside)
        parts = list(stream.map(lambda data: data.scores))
        np.testing.assert_array_equal(np.concatenate(parts), short.astype(np.float32))
        assert stream.bytes_read == logits.size * 2  # as it lies there, not as it is in memory


def test_an_array_stored_column_by_column_is_read_row_by_row(data, tmp_path):
    logits, labels = data
    np.save(tmp_path / "z.npy", np.asfortranarray(logits))
    np.save(tmp_path / "y.npy", labels)
    np.savez_compressed(tmp_path / "z.npz", logits=np.asfortranarray(logits), labels=labels)
    blocks = rhocal.stream(tmp_path / "z.npy", labels=tmp_path / "y.npy").map(lambda data: data.scores)
    np.testing.assert_array_equal(np.concatenate(list(blocks)), logits)
    for name in ("z.npy", "z.npz"):
        np.testing.assert_array_equal(files.read(tmp_path / name).test_set().scores, logits)
    with pytest.raises(FileError, match="Fortran"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "z.npz"))


def test_only_the_columns_that_are_wanted_are_read(data, tmp_path):
    logits, labels = data
    lists = pa.array(list(logits.astype(np.float32)))
    table = pa.table({"prompt": ["x" * 50] * 1500, "logits": lists, "labels": labels})
    pq.write_table(table, tmp_path / "z.parquet", row_group_size=400)
    stream = rhocal.stream(tmp_path / "z.parquet")
    assert {piece.columns for piece in stream.blocks} == {("logits", "labels")}
    found = rhocal.measure(stream)
    assert found == pytest.approx(rhocal.measure(rhocal.stream(iter([(logits.astype(np.float32), labels)]))), abs=5e-3)
    with pytest.raises(FileError, match=r"found prompt \(string\), logits .*; need 'scores'"):
        rhocal.stream(tmp_path / "z.parquet", logits_name="scores")


def test_rows_wider_than_a_block(tmp_path):
    logits, labels = synthetic(40, 140_000, dtype=np.float16)
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    cal = rhocal.RhoNormScaling().fit(rhocal.stream(tmp_path / "z.npz"))
    alike(cal, rhocal.RhoNormScaling().fit(logits, labels), logits)


def test_metrics_of_a_stream(data, tmp_path):
    logits, labels = data
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    names = [name for name, metric in METRICS.items() if metric.streams == "exactly"]
    found = rhocal.measure(rhocal.stream(tmp_path / "z.npz"), calibrator=cal, metrics=names)
    whole = rhocal.metrics.measure_all(Predictions.from_arrays(cal.transform(logits), labels), names)
    for name in names:
        assert found[name] == pytest.approx(whole[name], rel=1e-6, abs=1e-9), name
    source = rhocal.stream(tmp_path / "z.npz")
    found = measure.measure_source(source, [measure.Measurement({"raw": None})])
    values, bounds = found.values, found.error_bounds
    exact = rhocal.metrics.measure_all(Predictions.from_arrays(logits, labels))
    assert set(values["raw"]) == set(CORE)
    assert abs(values["raw"]["adaptive_ece"] - exact["adaptive_ece"]) <= bounds["adaptive_ece"]
    with pytest.raises(InputError, match="cannot be added up"):
        rhocal.measure(rhocal.stream(tmp_path / "z.npz"), metrics=["mmce"])
    assert rhocal.measure(logits, labels) == exact
    assert rhocal.measure(logits, labels, metrics=["mmce"])["mmce"] == rhocal.metrics.mmce(
        logits, labels, kind="logits"
    )


def test_an_evaluation_of_a_stream_is_the_one_in_memory(data, tmp_path):
    logits, labels = data
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    blocks = da.from_array(logits, chunks=(400, 30)), da.from_array(labels, chunks=500)
    whole = rhocal.evaluate(logits, labels, kind="logits", metrics=["ece", "nll", "brier", "mce"])
    for given in ((rhocal.stream(tmp_path / "z.npz"),), blocks):
        found = rhocal.evaluate(*given, kind="logits", metrics=["ece", "nll", "brier", "mce"])
        assert (found.verdict, found.n_samples, found.n_classes) == (whole.verdict, 1500, 100)
        assert found.p_value == whole.p_value
        for name, test in whole.tests.items():
            assert found.tests[name].p_value == test.p_value, name
        for mine, theirs in zip(found.values, whole.values, strict=True):
            assert mine.metric == theirs.metric
            for name in ("value", "low", "high", "floor", "p_value"):
                same = pytest.approx(getattr(theirs, name), rel=1e-9, nan_ok=True)  # MCE has no interval
                assert getattr(mine, name) == same, (mine.metric, name)
    with pytest.raises(InputError, match="tace needs all probabilities"):
        rhocal.evaluate(rhocal.stream(tmp_path / "z.npz"), kind="logits", metrics=["tace"])
    with pytest.raises(InputError, match="bring their own"):
        rhocal.evaluate(rhocal.stream(tmp_path / "z.npz"), labels, kind="logits")
    with pytest.raises(InputError, match="labels are missing"):
        rhocal.evaluate(blocks[0], kind="logits")
    with pytest.raises(InputError, match="groups: blocks carry none"):
        rhocal.evaluate(rhocal.stream(tmp_path / "z.npz"), kind="logits", groups="predicted")


def test_ignored_labels_and_weights_of_zero(data):
    logits, labels = data
    marked = labels.copy()
    marked[:200], marked[700::3] = -100, -100
    parts = [(logits[k : k + 100], marked[k : k + 100]) for k in range(0, 1500, 100)]
    cal = rhocal.TemperatureScaling().fit(rhocal.stream(iter(parts[5:] + parts[:5])), ignore_index=-100)
    same = rhocal.TemperatureScaling().fit(logits, marked, ignore_index=-100)
    assert cal.temperature_ == pytest.approx(same.temperature_, rel=1e-5)
    found = rhocal.measure(rhocal.stream(iter(parts)), ignore_index=-100)
    kept = marked >= 0
    assert found["nll"] == pytest.approx(rhocal.metrics.nll(logits[kept], marked[kept], kind="logits"), rel=1e-6)


def test_methods_that_cannot_stream_draw_a_subsample(data, tmp_path, monkeypatch):
    logits, labels = data
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    monkeypatch.setattr(sampling, "SUBSAMPLE_ENTRIES", 80_000)
    with pytest.warns(SubsampleWarning, match=r"histogram-binning cannot .* 800 of 1,500 samples"):
        cal = rhocal.calibrator("histogram-binning").fit(rhocal.stream(tmp_path / "z.npz"))
    with pytest.warns(SubsampleWarning):
        again = rhocal.calibrator("histogram-binning").fit(rhocal.stream(tmp_path / "z.npz"))
    np.testing.assert_array_equal(cal.predict_proba(logits[:50]), again.predict_proba(logits[:50]))
    with pytest.warns(SubsampleWarning, match="rho='learn'"):
        rhocal.RhoNormScaling(rho="learn").fit(rhocal.stream(tmp_path / "z.npz"))
    monkeypatch.setattr(sampling, "SUBSAMPLE_ENTRIES", 1_000_000)
    whole = rhocal.calibrator("histogram-binning").fit(rhocal.stream(tmp_path / "z.npz"))  # all fit: no warning
    same = rhocal.calibrator("histogram-binning").fit(logits, labels)
    np.testing.assert_array_equal(whole.predict_proba(logits[:50]), same.predict_proba(logits[:50]))


def test_profiles_of_blocks_are_the_profile_of_all(data, tmp_path):
    logits, labels = data
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    path = tmp_path / "profile.safetensors"
    rhocal.save_profile(rhocal.profile_logits(rhocal.stream(tmp_path / "z.npz")), path)
    cal = rhocal.FieldScaling().fit_profile(rhocal.load_profile(path))
    same = rhocal.FieldScaling().fit(logits, labels)
    assert np.abs(cal.predict_proba(logits) - same.predict_proba(logits)).max() < 1e-4
    cal = rhocal.RhoNormScaling()
    for_one_fit = fitting.Fits(sources.as_source(rhocal.stream(tmp_path / "z.npz")), {"": cal}).fit("", cal)
    with pytest.raises(InputError, match="made for one fit"):
        rhocal.save_profile(for_one_fit, path)


def test_bad_blocks_are_named_or_counted(data, tmp_path):
    logits, labels = data
    for k, part in enumerate(np.array_split(np.arange(1500), 3)):
        as_parquet(tmp_path / f"part-{k}.parquet", logits[part].astype(np.float32), labels[part], rows=250)
    stream = rhocal.stream(tmp_path)
    raw = bytearray((tmp_path / "part-1.parquet").read_bytes())
    raw[4:2000] = bytes(1996)  # the first row group of the second file, its footer stays whole
    (tmp_path / "part-1.parquet").write_bytes(raw)
    with pytest.raises(FileError, match=r"part-1\.parquet, row group 0"):
        rhocal.TemperatureScaling().fit(stream)
    patient = rhocal.stream(tmp_path, skip_bad=True)
    cal = rhocal.TemperatureScaling().fit(patient)
    assert len(patient.skipped) == 1
    good = np.r_[0:500, 750:1500]
    same = rhocal.TemperatureScaling().fit(logits[good], labels[good])
    assert cal.temperature_ == pytest.approx(same.temperature_, rel=1e-5)


def test_a_folder_with_an_odd_file(data, tmp_path):
    logits, labels = data
    wide = logits.astype(np.float32)
    for k in range(4):
        rows = slice(300 * k, 300 * (k + 1))
        as_parquet(tmp_path / f"{k}.parquet", wide[rows], labels[rows], rows=100)
    as_parquet(tmp_path / "empty.parquet", wide[:0], labels[:0])
    whole = rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path))  # a file without rows does no harm
    assert whole.temperature_ == pytest.approx(
        rhocal.TemperatureScaling().fit(logits[:1200], labels[:1200]).temperature_, rel=1e-5
    )
    methods = [rhocal.TemperatureScaling(), rhocal.calibrator("vector")]

    as_parquet(tmp_path / "2.parquet", wide[:300, :90], labels[:300] % 90, rows=100)
    for cal in methods:
        with pytest.raises(InputError, match=r"0\.parquet, row group 0 has 100, .*2\.parquet, row group \d has 90"):
            cal.fit(rhocal.stream(tmp_path))
    with pytest.raises(InputError, match=r"0\.parquet, row group 0 has 100, .*2\.parquet, row group 0 has 90"):
        rhocal.measure(rhocal.stream(tmp_path))

    bad = wide[600:900].copy()
    bad[170, 3] = np.nan
    as_parquet(tmp_path / "2.parquet", bad, labels[600:900], rows=100)
    for work in (*(cal.fit for cal in methods), rhocal.measure):
        with pytest.raises(InputError, match=r"2\.parquet, row group 1: logits must be finite.* row 70"):
            work(rhocal.stream(tmp_path))

    stream = rhocal.stream(tmp_path)
    (tmp_path / "3.parquet").unlink()  # between the listing and the reading
    with pytest.raises(FileError, match=r"3\.parquet, row group \d: cannot be read: .*No such file"):
        rhocal.TemperatureScaling().fit(stream)
    (tmp_path / "2.parquet").unlink()
    patient = rhocal.stream(sorted(tmp_path.glob("*.parquet")), skip_bad=True)
    (tmp_path / "1.parquet").unlink()
    cal = rhocal.TemperatureScaling().fit(patient)
    assert len(patient.skipped) == 3  # its three blocks
    assert cal.temperature_ == pytest.approx(
        rhocal.TemperatureScaling().fit(logits[:300], labels[:300]).temperature_, rel=1e-4
    )


def test_what_cannot_be_read_is_said(data, tmp_path):
    logits, labels = data
    np.save(tmp_path / "z.npy", logits)
    np.save(tmp_path / "short.npy", labels[:7])
    np.savez(tmp_path / "z.npz", x=logits)
    whole = (tmp_path / "z.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[: len(whole) // 2])
    for name, message in [
        ("none.npy", "no such file"),
        ("z.npz", "need 'logits'"),
        ("*.zip", "no file fits"),
    ]:
        with pytest.raises(FileError, match=message):
            rhocal.stream(tmp_path / name)
    (tmp_path / "nothing.npy").touch()
    with pytest.raises(FileError, match="not a single byte"):
        rhocal.stream(tmp_path / "nothing.npy")
    (tmp_path / "z.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(FileError, match="block by block"):
        rhocal.stream(tmp_path / "z.csv")
    with pytest.raises(FileError, match="differ in length"):
        rhocal.stream(tmp_path / "z.npy", labels=tmp_path / "short.npy")
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(FileError, match="cut off"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "cut.npy", labels=tmp_path / "labels.npy"))
    with pytest.raises(InputError, match="labels are missing"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "z.npy"))
    with pytest.raises(InputError, match="bring their own"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "z.npy"), labels)
    with pytest.raises(InputError, match=r"block 0 must be"):
        rhocal.TemperatureScaling().fit(rhocal.stream(iter([logits])))
    bad = logits.copy()
    bad[1399, 3] = np.nan  # a block that gives no sample to the pilot
    np.savez(tmp_path / "bad.npz", logits=bad, labels=labels)
    with pytest.raises(InputError, match=r"bad\.npz, rows 1,200 to 1,400: .*row 199"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "bad.npz"))


def test_block_function_is_public_and_small(data):
    logits, labels = data
    plan = rhocal.plan_for(rhocal.RhoNormScaling(), Predictions.from_arrays(logits[::3], labels[::3]))
    parts = [rhocal.profile_block(logits[k : k + 500], labels[k : k + 500], plan) for k in (0, 500, 1000)]
    cal = rhocal.RhoNormScaling().fit_profile(rhocal.Profile.concat(parts))
    alike(cal, rhocal.RhoNormScaling().fit(logits, labels), logits)


def test_a_folder_with_data_in_other_formats_is_refused(tmp_path):
    logits, labels = synthetic(40)
    as_parquet(tmp_path / "a.parquet", logits, labels)
    rhocal.TemperatureScaling().fit(logits, labels).save(tmp_path / "cal.safetensors")
    for name in (".b.csv", "_c.csv", "d.csv.tmp", "state.json", "README.md"):  # hidden, temporary, about the others
        (tmp_path / name).write_text("0,1,labels\n1,2,0\n")
    (tmp_path / "empty").mkdir()
    assert rhocal.stream(tmp_path).n_rows == 40
    (tmp_path / "e.csv").write_text("0,1,labels\n1,2,0\n")
    (tmp_path / "more").mkdir()
    as_parquet(tmp_path / "more" / "f.parquet", logits, labels)
    with pytest.raises(FileError, match=r"holds e\.csv, more/ beside \.parquet files.*\*\.parquet"):
        rhocal.stream(tmp_path)
    assert rhocal.stream(str(tmp_path / "*.parquet")).n_rows == 40
