"""What is stated about top-k data is honored or refused, in Python and on the command line."""

import json

import numpy as np
import pytest

import rhocal
from helpers import run, synthetic
from rhocal.data.top_k import TopK
from rhocal.errors import InputError
from rhocal.numerics.special import log_softmax

N_CLASSES = 12


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(600, N_CLASSES, scale=2.0)
    log_p = log_softmax(np.asarray(logits, np.float64))
    order = np.argsort(-log_p, axis=1)[:, :4]
    return np.take_along_axis(log_p, order, axis=1), order, labels


@pytest.fixture(scope="module")
def top(data):
    return TopK.from_arrays(*data[:2], n_classes=N_CLASSES)


VOCABULARIES = [
    np.array([f"w{chr(97 + (7 * i) % N_CLASSES)}" for i in range(N_CLASSES)]),  # not sorted
    (7 * np.arange(N_CLASSES) + 3) % N_CLASSES,  # numbers in another order
]


@pytest.mark.parametrize("classes", VOCABULARIES, ids=["texts", "numbers"])
def test_names_of_classes(data, top, classes):
    labels = data[2]
    plain, named = rhocal.TemperatureScaling().fit(top, labels), rhocal.TemperatureScaling()
    named.fit(top, classes[labels], classes=classes)
    assert named.temperature_ == plain.temperature_
    np.testing.assert_array_equal(named.classes_, classes)
    np.testing.assert_array_equal(named.predict(top), classes[top.indices[:, 0]])
    for metric in (rhocal.metrics.accuracy, rhocal.metrics.nll):
        assert metric(top, classes[labels], classes=classes) == metric(top, labels)
    mine = rhocal.evaluate(top, classes[labels], classes=classes, n_replicates=20)
    assert mine["ece"].value == rhocal.evaluate(top, labels, n_replicates=20)["ece"].value


def test_groups_and_what_is_refused(data, top):
    labels = data[2]
    sites = np.where(np.arange(600) < 200, "a", "b")
    by_site = {group.group: group for group in rhocal.evaluate(top, labels, groups=sites, n_replicates=20).groups}
    assert by_site["a"].n_samples == 200
    rows = np.flatnonzero(sites == "a")
    assert by_site["a"].ece.value == pytest.approx(rhocal.metrics.ece(top.take(rows), labels[rows]))
    names = VOCABULARIES[0]
    predicted = rhocal.evaluate(top, names[labels], classes=names, groups="predicted", n_replicates=20).groups
    assert {group.group for group in predicted} == set(names[top.indices[:, 0]].tolist())
    for bad in ({"kind": "probs"}, {"class_axis": 1}, {"groups": sites}, {"positive": 1}):
        with pytest.raises(InputError, match=f"{next(iter(bad))} is not for top-k data"):
            rhocal.TemperatureScaling().fit(top, labels, **bad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_classes": "200"}, "n_classes is a whole number; got '200'"),
        ({"rest_log_mass": "x"}, "rest_log_mass must hold numbers"),
        ({"values": [["a", "b"]]}, "values must hold numbers"),
        ({"values": [[-0.1, -3.0], [-0.1]]}, "values is not one row of k numbers"),
        ({"indices": [["a", "b"]]}, "indices must be column numbers"),
    ],
)
def test_other_types_are_refused(change, message):
    good = {"values": [[-0.1, -3.0]], "indices": [[0, 1]], "n_classes": 200}
    with pytest.raises(InputError, match=message):
        TopK.from_arrays(**(good | change))
    with pytest.raises(InputError, match="answers must be all texts or all numbers"):
        rhocal.aggregate_tokens([-0.1] * 3, [1, None, 2])


@pytest.fixture(scope="module")
def file(data, tmp_path_factory):
    values, indices, labels = data
    path = tmp_path_factory.mktemp("top") / "top.npz"
    names = VOCABULARIES[0]
    arrays = {"top_log_probs": values, "top_indices": indices, "n_classes": N_CLASSES, "labels": names[labels]}
    weights = (np.arange(600) < 300).astype(float)
    np.savez(path, **arrays, classes=names, weights=weights, patient=np.arange(600) // 20, site=np.arange(600) % 2)
    np.savez(path.with_name("bare.npz"), **(arrays | {"labels": labels}))
    np.savez(path.with_name("short.npz"), **(arrays | {"labels": labels[:5]}))
    return path


def fitted(path, target, *options):
    return json.loads(run("fit", path, "-o", target, *options, "--json").stdout)["parameters"]["temperature"]


def evaluated(path, *options):
    return json.loads(run("evaluate", path, *options, "--json").stdout)["evaluation"]["uncalibrated"]


def test_a_fit_honors_names_and_weights(file, data, top, tmp_path):
    labels, target = data[2], tmp_path / "cal.safetensors"
    bare, half = file.with_name("bare.npz"), top.take(np.arange(300))
    whole = rhocal.TemperatureScaling().fit(top, labels).temperature_
    assert fitted(file, target) == whole
    np.testing.assert_array_equal(rhocal.load(target).classes_, VOCABULARIES[0])
    assert fitted(bare, target) == whole
    of_half = rhocal.TemperatureScaling().fit(half, labels[:300]).temperature_
    assert fitted(file, target, "--weights", "weights") == pytest.approx(of_half, rel=1e-6)
    texts = ",".join(map(str, VOCABULARIES[1]))
    np.save(tmp_path / "labels.npy", VOCABULARIES[1][labels])
    assert fitted(bare, target, "--classes", texts, "--labels", tmp_path / "labels.npy") == whole
    assert "labels and values differ in length" in run("fit", file.with_name("short.npz"), "-o", target, code=2).stderr


def test_an_evaluation_honors_clusters_groups_metrics_and_the_gate(file):
    plain, clustered = evaluated(file), evaluated(file, "--clusters", "patient")
    assert plain["values"]["ece"]["value"] == clustered["values"]["ece"]["value"]
    assert plain["values"]["ece"]["low"] != clustered["values"]["ece"]["low"]
    assert {group["group"] for group in evaluated(file, "--groups", "site")["groups"]} == {"0", "1"}
    assert set(evaluated(file, "--metrics", "ece,nll")["values"]) == {"ece", "nll"}
    half = evaluated(file, "--weights", "weights", "--weight-kind", "importance")
    assert half["values"]["ece"]["value"] != plain["values"]["ece"]["value"]
    assert "failed" in run("evaluate", file, "--max-ece", 0.001, code=1).stdout


@pytest.mark.parametrize(
    "options",
    [
        ("evaluate", "--kind", "probs"),
        ("evaluate", "--columns", "a,b"),
        ("evaluate", "--positive", "a"),
        ("evaluate", "--clusters", "no-such-array"),
        ("evaluate", "--stream"),
        ("evaluate", "--classes", "a,b"),
        ("apply", "--interval", "0.9", "--fitted-on", "data.npz"),
        ("apply", "--write", "logits"),
        ("apply", "--keep-columns", "no-such-array"),
    ],
    ids=" ".join,
)
def test_other_options_are_refused(file, options, tmp_path):
    command, *rest = options
    target = tmp_path / "cal.safetensors"
    if command == "apply":
        run("fit", file, "-o", target)
        rest = [*rest, "-o", tmp_path / "out.npz"]
    words = {"--clusters": "no-such-array", "--classes": "classes", "--write": "--write logits"}
    done = run(command, *([target] if command == "apply" else []), file, *rest, code=2)
    assert words.get(options[1], options[1]) in done.stderr


def test_an_output_names_classes_and_keeps_columns(file, top, tmp_path):
    target, output = tmp_path / "cal.safetensors", tmp_path / "out.npz"
    run("fit", file, "-o", target)
    run("apply", target, file, "-o", output, "--keep-columns", "patient")
    with np.load(output) as written:
        np.testing.assert_array_equal(written["predicted"], VOCABULARIES[0][top.indices[:, 0]])
        assert written["patient"].shape == (600,)
    assert evaluated(output)["n_samples"] == 600
    cal = rhocal.load(target)
    logits, labels = synthetic(600, N_CLASSES)
    full = rhocal.TemperatureScaling().fit(logits, labels)
    cal.policy_ = rhocal.decide_sets(full, logits, labels, coverage=0.9).policy
    cal.save(target)
    assert "has a policy" in run("apply", target, file, "-o", output, code=2).stderr


def test_an_output_of_saturated_scores_can_be_read_again(tmp_path):
    values, indices = np.tile([0.0, -800.0, -900.0], (100, 1)), np.tile([3, 1, 2], (100, 1))
    path, target, output = tmp_path / "top.npz", tmp_path / "cal.safetensors", tmp_path / "out.npz"
    labels = np.r_[np.full(90, 3), np.full(10, 9)]
    np.savez(path, top_log_probs=values, top_indices=indices, n_classes=50, labels=labels)
    run("fit", path, "-o", target)
    run("apply", target, path, "-o", output)
    assert evaluated(output)["accuracy"] == 0.9
    cal = rhocal.TemperatureScaling().fit(TopK.from_arrays(values, indices, None, 50), labels)
    calibrated = cal.transform(TopK.from_arrays(values, indices, None, 50))
    expected = -800 / cal.temperature_ + calibrated.log_probs[0, 0]
    assert calibrated.log_probs[0, 1] == pytest.approx(expected)
