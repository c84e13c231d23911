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


@pytest.mark.usefixtures("few_rows")
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


@pytest.mark.usefixtures("block_by_block")
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


def test_block_function_is_public_and_small(data):
    logits, labels = data
    plan = rhocal.plan_for(rhocal.RhoNormScaling(), Predictions.from_arrays(logits[::3], labels[::3]))
    parts = [rhocal.profile_block(logits[k : k + 500], labels[k : k + 500], plan) for k in (0, 500, 1000)]
    cal = rhocal.RhoNormScaling().fit_profile(rhocal.Profile.concat(parts))
    alike(cal, rhocal.RhoNormScaling().fit(logits, labels), logits)
