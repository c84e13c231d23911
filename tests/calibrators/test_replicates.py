"""Intervals of probabilities: every method, any order, weights, and what they cover."""

import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.calibrators.bootstrap import replicates
from rhocal.calibrators.bootstrap.refitted_method import method_of_refits
from rhocal.calibrators.bootstrap.replicates import bootstrap_source, interval_of
from rhocal.calibrators.bootstrap.resampling import draw_weights
from rhocal.calibrators.compose import chain
from rhocal.calibrators.guard import fit_without_warnings
from rhocal.calibrators.ridge_centers import drawn_centers, ridge_centers
from rhocal.cli import app, in_options
from rhocal.data.predictions import Predictions
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.errors import FewSamplesWarning, InputError, SuspiciousInputWarning

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
Z, Y = synthetic(250, 3, seed=2)
BINARY = "platt beta isotonic histogram-binning bbq venn-abers"
METHODS = f"identity temperature rho-norm field multi-domain ets vector svs {BINARY}".split()
"""One of each kind; the others differ in time alone."""


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_intervals(name):
    groups = np.arange(250) % 2 if rhocal.CALIBRATORS[name].family.takes_groups else None
    cal = rhocal.calibrator(name).fit(Z, Y, groups=groups)
    low, high = rhocal.bootstrap(cal, Z, Y, n_replicates=20, groups=groups).predict_interval(Z, groups=groups)
    probs = cal.predict_proba(Z, groups=groups)
    assert ((low >= 0) & (low <= probs) & (probs <= high) & (high <= 1)).all()
    assert (high - low > 1e-6).any() == (name != "identity")


def test_coverage_where_the_family_is_right():
    """Temperature scaling of a model that needs it: 60 trials, whose binomial error is 0.028."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(60, 300, 3))
    p = np.exp(z / 1.6) / np.exp(z / 1.6).sum(axis=2, keepdims=True)
    y = (p.cumsum(axis=2) < rng.random((60, 300, 1))).sum(axis=2)
    covered = []
    for k in range(60):
        fits = rhocal.bootstrap(rhocal.TemperatureScaling().fit(z[k], y[k]), z[k], y[k], n_replicates=30)
        low, high = fits.predict_interval(z[k, :20])
        covered.append(((low <= p[k, :20]) & (p[k, :20] <= high)).mean())
    assert 0.87 < np.mean(covered) < 0.99


def test_order_copies_and_weights():
    cal = rhocal.calibrator("vector").fit(Z, Y)
    order = np.random.default_rng(0).permutation(250)
    one = rhocal.bootstrap(cal, Z, Y, n_replicates=20).predict_interval(Z[:9])
    other = rhocal.bootstrap(cal, Z[order], Y[order], n_replicates=20).predict_interval(Z[:9])
    np.testing.assert_allclose(one, other, atol=1e-6)
    drawn = rhocal.bootstrap(cal, Z, Y, n_replicates=20, seed=1).predict_interval(Z[:9])
    assert not np.allclose(one, drawn, atol=1e-4)
    counts = np.where(np.arange(250) < 125, 2.0, 0.0)
    weights = np.stack(list(draw_weights(Predictions.from_arrays(Z, Y, weights=counts), 400, 0)))
    assert (weights[:, 125:] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    # Twice the samples: half of the variance.
    assert weights[:, :125].var() * 125**2 == pytest.approx(0.5, rel=0.05)


def test_bounds_of_probabilities_at_the_ends():
    drawn = np.array([[0.0, 1.0, 0.5, 1e-9]] * 10 + [[0.0, 1.0, 0.7, 3e-9]] * 10)
    low, high = interval_of(np.array([0.0, 1.0, 0.6, 2e-9]), drawn, 0.95)
    assert low.tolist()[:2] == [0, 1]
    assert high.tolist()[:2] == [0, 1]
    wide = 2.093 / 1.769  # Student's t with 19 degrees of freedom at 95 %, over that at 19/21
    angles = [2 * np.arcsin(np.sqrt(p)) for p in (0.5, 0.6, 0.7)]
    ends = [np.sin((angles[1] + wide * (end - angles[1])) / 2) ** 2 for end in (angles[0], angles[2])]
    assert (low[2], high[2]) == pytest.approx(ends, abs=1e-3)
    assert 0 <= low[3] < 1e-9
    assert 3e-9 < high[3] < 1e-8


@pytest.mark.parametrize("n_replicates", [50, 100])
def test_percentiles_cover_at_bounds_too(n_replicates):
    """An estimate that cannot fall below 0.1, as its replicates: Student's t covers 85 % at 0.15."""
    rng = np.random.default_rng(0)
    for truth in (0.1, 0.15, 0.5):
        center = truth + 0.04 * rng.normal(size=4000)
        drawn = center + 0.04 * rng.normal(size=(n_replicates, 4000))
        low, high = interval_of(np.maximum(center, 0.1), np.maximum(drawn, 0.1), 0.95)
        covered = ((low <= truth + 1e-12) & (truth <= high)).mean()
        assert 0.935 < covered < (0.985 if truth == 0.1 else 0.965), truth


def test_a_higher_level_is_wider():
    drawn = np.random.default_rng(0).uniform(0.2, 0.6, size=(50, 3))
    bounds = np.array([interval_of(np.full(3, 0.4), drawn, level) for level in (0.5, 0.9, 0.96, 0.965, 0.99, 0.999)])
    assert (np.diff(bounds[:, 0], axis=0) <= 0).all()
    assert (np.diff(bounds[:, 1], axis=0) >= 0).all()


def test_choices_stay_and_an_adapted_calibrator_keeps_its_mix():
    auto = rhocal.calibrator("auto", methods=("temperature", "vector")).fit(Z, Y)
    assert method_of_refits(auto).label == auto.chosen_.label
    field = rhocal.calibrator("field").fit(*rhocal.demo_logits("cal"))
    assert method_of_refits(field).ridge == field.ridge_
    for name, option in (
        ("polynomial", "degree"),
        ("iop", "ridge"),
        ("dirichlet", "ridge_intercept"),
    ):
        fitted = rhocal.calibrator(name).fit(Z, Y)
        method = method_of_refits(fitted)
        assert method.label == "temperature" or isinstance(getattr(method, option), float | int), name
        again = method.fit(Z, Y).predict_proba(Z)
        np.testing.assert_allclose(again, fitted.predict_proba(Z), atol=1e-4)
    chain = rhocal.calibrator("svs:field").fit(Z, Y)
    assert method_of_refits(chain).second.ridge == chain.second_.ridge_
    average = rhocal.calibrator("average").fit(Z, Y)
    assert method_of_refits(average).calibrators[0].ridge == average.members_[0].ridge_
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    moved = rhocal.adapt(cal, priors=[0.8, 0.1, 0.1]).calibrator
    low, high = rhocal.bootstrap(moved, Z, Y).predict_interval(Z)
    probs = moved.predict_proba(Z)
    assert ((low <= probs) & (probs <= high)).all()
    inside = (low <= cal.predict_proba(Z)) & (cal.predict_proba(Z) <= high)
    assert inside.mean() < 0.5


def test_shapes_names_and_bad_requests():
    cal = rhocal.TemperatureScaling().fit(Z[:, :2], Y % 2)
    fits = rhocal.bootstrap(cal, Z[:, :2], Y % 2, n_replicates=20)
    assert fits.predict_interval(Z[:7, 0]).low.shape == (7, 2)
    assert fits.predict_interval(Z[:8, :2].reshape(2, 4, 2).transpose(0, 2, 1), class_axis=1).high.shape == (
        2,
        2,
        4,
    )
    narrow, wide = (fits.predict_interval(Z[:5, :2], level=level) for level in (0.5, 0.99))
    assert (wide.low < narrow.low).all()
    with pytest.raises(InputError, match="level must lie between 0 and 1"):
        fits.predict_interval(Z[:5, :2], level=95)
    with pytest.raises(InputError, match=r"level must be a number between 0 and 1 .* got 'a'"):
        fits.predict_interval(Z[:5, :2], level="a")
    with pytest.raises(InputError, match="n_replicates must be a whole number from 20"):
        rhocal.bootstrap(cal, Z[:, :2], Y % 2, n_replicates=1)
    with pytest.raises(InputError, match="must be in memory"):
        rhocal.bootstrap(cal, rhocal.stream(iter([(Z[:, :2], Y % 2)])))
    with pytest.warns(SuspiciousInputWarning, match="fitted on 250 samples, and these are 100"):
        rhocal.bootstrap(cal, Z[:100, :2], Y[:100] % 2, n_replicates=20)


@pytest.mark.parametrize("name", ["temperature", "vector", "field", "isotonic", "svs", "ets"])
@pytest.mark.filterwarnings("error::rhocal.errors.SuspiciousInputWarning")
def test_samples_that_did_not_fit_are_noticed(name):
    """As many samples, with the same labels: only a fit on them tells that they are others."""
    cal = rhocal.calibrator(name).fit(Z, Y)
    order = np.random.default_rng(0).permutation(250)
    rhocal.bootstrap(cal, Z[order], Y[order], n_replicates=20)
    moved = rhocal.adapt(cal, priors=[0.8, 0.1, 0.1]).calibrator
    rhocal.bootstrap(moved, Z, Y, n_replicates=20)
    other = 1.4 * Z[:, [0, 2, 1]]
    for fitted in (cal, moved):
        with pytest.warns(SuspiciousInputWarning, match=r"they are not those that .* was fitted on"):
            rhocal.bootstrap(fitted, other, Y, n_replicates=20)
    weights = np.arange(250) % 3
    weighted = rhocal.calibrator(name).fit(Z, Y, weights)
    rhocal.bootstrap(weighted, Z, Y, weights, n_replicates=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_replicates": 20.5}, "n_replicates must be a whole number from 20 to 10,000; got 20.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        ({"seed": "a"}, "seed must be a whole number"),
    ],
)
def test_numbers_of_replicates(options, message):
    with pytest.raises(InputError, match=message):
        rhocal.bootstrap(rhocal.TemperatureScaling().fit(Z, Y), Z, Y, **options)


def test_intervals_on_the_command_line(tmp_path):
    np.savez(tmp_path / "data.npz", logits=Z, labels=Y)
    cal, out = tmp_path / "cal.safetensors", tmp_path / "out.npz"
    fitted = rhocal.TemperatureScaling().fit(Z, Y)
    fitted.save(cal)

    def call(*options, to=out):
        done = CliRunner().invoke(
            app, ["apply", str(cal), str(tmp_path / "data.npz"), "-o", str(to), *map(str, options)]
        )
        return in_options(done.exception, app) if isinstance(done.exception, InputError) else done.output

    call("--interval", 0.9, "--fitted-on", tmp_path / "data.npz")
    low, high = rhocal.bootstrap(fitted, Z, Y).predict_interval(Z, level=0.9)
    with np.load(out) as file:
        np.testing.assert_allclose(file["probs_low"], low)
        np.testing.assert_allclose(file["probs_high"], high)
    blocks = tmp_path / "out.safetensors"
    call("--interval", 0.9, "--fitted-on", tmp_path / "data.npz", "--stream", to=blocks)
    from safetensors.numpy import load_file

    np.testing.assert_allclose(load_file(blocks)["probs_low"], low, atol=1e-12)
    assert "give it: --fitted-on data.npz" in call("--interval", 0.9)
    assert "give their level too: --interval 0.95" in call("--fitted-on", tmp_path / "data.npz")
    assert "--interval must lie between 0 and 1" in call("--interval", 95, "--fitted-on", tmp_path / "data.npz")


def test_each_fit_is_reported():
    source = as_source(Z, Y, spec=InputSpec("logits"))
    for name, n_fits in (("temperature", 20), ("isotonic", 0)):
        fitted, reported = rhocal.calibrator(name).fit(Z, Y), []
        bootstrap_source(fitted, source, 20, report=reported.append)
        assert reported == [name] * n_fits


def test_replicates_of_a_chain_are_not_compared_with_references(monkeypatch):
    """Their held-out scores are evidence of a fit that is in use, and took three quarters of the time."""
    data = Predictions.from_arrays(Z, Y, spec=InputSpec("logits")).prepared()
    cal = rhocal.calibrator("svs:temperature").fit(Z, Y)
    compared = [
        fit_without_warnings("svs:temperature", replace(data, weights=drawn * data.total_weight)).map_.probs(data)
        for drawn in draw_weights(data, 3, 0)
    ]
    monkeypatch.setattr(chain, "score_rows", lambda *_, **__: pytest.fail("a replicate was compared"))
    weights = draw_weights(data, 3, 0)
    maps = list(replicates._refits(cal, data, weights))
    np.testing.assert_array_equal(compared, [map_.probs(data) for map_ in maps])


def test_centers_of_ridges_are_drawn_in_replicates(monkeypatch):
    """The prior of a ridge is part of the posterior: with 100 samples svs had intervals that are a tenth too narrow."""
    precision = np.array([1.0, 4.0, 0.0])
    assert not ridge_centers(precision).any()
    drawn = []
    for k in range(2000):
        with drawn_centers(0, k):
            drawn.append(ridge_centers(precision))
            assert np.array_equal(drawn[-1], ridge_centers(precision))
    np.testing.assert_allclose(np.std(drawn, axis=0), [1.0, 0.5, 0.0], rtol=0.06)
    assert not ridge_centers(precision).any()
    cal = rhocal.calibrator("svs").fit(Z[:100], Y[:100])
    with_draws = rhocal.bootstrap(cal, Z[:100], Y[:100], n_replicates=60).predict_interval(Z)
    monkeypatch.setattr(replicates, "drawn_centers", lambda *_: nullcontext())
    without = rhocal.bootstrap(cal, Z[:100], Y[:100], n_replicates=60).predict_interval(Z)
    assert (with_draws.high - with_draws.low).mean() > 1.05 * (without.high - without.low).mean()


COPIES = np.repeat(np.arange(250), 4)
"""Four copies of each sample, which are a cluster."""


@pytest.mark.parametrize(
    "name", ["isotonic", "venn-abers", "platt", "temperature", "svs", "histogram-binning", "field"]
)
def test_copies_in_clusters_are_no_evidence(name):
    """Ten copies of each sample halved the intervals of isotonic regression: clusters could not be stated."""
    once, copied = rhocal.calibrator(name).fit(Z, Y), rhocal.calibrator(name).fit(Z[COPIES], Y[COPIES], clusters=COPIES)
    one = rhocal.bootstrap(once, Z, Y, n_replicates=20).predict_interval(Z[:50])
    other = rhocal.bootstrap(copied, Z[COPIES], Y[COPIES], n_replicates=20, clusters=COPIES).predict_interval(Z[:50])
    np.testing.assert_allclose((other.high - other.low).mean(), (one.high - one.low).mean(), rtol=0.02)


def test_names_and_order_of_clusters_do_not_matter():
    clusters = np.arange(250) // 3
    names = np.array([f"patient {k}" for k in (clusters * 7) % 101])
    order = np.random.default_rng(0).permutation(250)
    cal = rhocal.calibrator("vector").fit(Z, Y, clusters=clusters)
    one = rhocal.bootstrap(cal, Z, Y, n_replicates=20, clusters=clusters).predict_interval(Z[:9])
    other = rhocal.bootstrap(cal, Z[order], Y[order], n_replicates=20, clusters=names[order]).predict_interval(Z[:9])
    np.testing.assert_allclose(one, other, atol=1e-6)
    alone = rhocal.bootstrap(rhocal.calibrator("vector").fit(Z, Y), Z, Y, n_replicates=20)
    of_each = rhocal.bootstrap(rhocal.calibrator("vector").fit(Z, Y), Z, Y, n_replicates=20, clusters=np.arange(250))
    np.testing.assert_array_equal(alone.predict_interval(Z[:9]), of_each.predict_interval(Z[:9]))
    data = Predictions.from_arrays(Z, Y, weights=np.arange(250) % 3, clusters=clusters)
    drawn = np.stack(list(draw_weights(data, 3, 0)))
    assert (drawn[:, np.arange(250) % 3 == 0] == 0).all()
    np.testing.assert_allclose(drawn[:, 1] * 2, drawn[:, 2])


def test_clusters_of_the_fit_are_asked_for(tmp_path):
    clusters = np.arange(250) // 5
    cal = rhocal.TemperatureScaling().fit(Z, Y, clusters=clusters)
    cal.save(tmp_path / "cal.safetensors")
    moved = rhocal.adapt(cal, priors=[0.8, 0.1, 0.1]).calibrator
    for fitted in (cal, rhocal.load(tmp_path / "cal.safetensors"), moved):
        assert fitted.n_clusters_ == 50
        with pytest.raises(InputError, match=r"fitted on samples of 50 clusters; .* Pass clusters= to state what"):
            rhocal.bootstrap(fitted, Z, Y)
        rhocal.bootstrap(fitted, Z, Y, n_replicates=20, clusters=clusters)
    with pytest.raises(InputError, match="the samples are those of 1 clusters"):
        rhocal.bootstrap(cal, Z, Y, clusters=np.zeros(250))
    assert rhocal.TemperatureScaling().fit(Z, Y).n_clusters_ is None
    assert rhocal.calibrator("svs").fit(Z[COPIES], Y[COPIES], clusters=COPIES).n_samples_ == 250


def test_few_clusters_have_wide_intervals():
    """Means of 5 clusters: Student's t with 4 degrees of freedom, and the variance of a mean of 5."""
    drawn = np.array([[0.4], [0.6]] * 50)
    center = np.array([0.5])
    (low, high), (low_5, high_5) = interval_of(center, drawn, 0.95), interval_of(center, drawn, 0.95, 5.0)
    angle = [2 * np.arcsin(np.sqrt(side)) for side in (low, high, low_5, high_5)]
    assert ((angle[3] - angle[2]) / (angle[1] - angle[0])).item() == pytest.approx(
        2.776 / 1.960 * np.sqrt(1.5), rel=1e-3
    )


@pytest.mark.parametrize(("sizes", "number"), [((60, 20, 4), "4.72"), ((29,), "29"), ((30,), None), ((50, 0, 0), None)])
def test_clusters_of_different_sizes(sizes, number, recwarn):
    """A variance that comes from 4 clusters of 40 has their degrees of freedom: 95 % intervals held 87 %."""
    of_size = (1, 5, 40) if len(sizes) > 1 else (8,)
    clusters = np.repeat(np.arange(sum(sizes)), np.repeat(of_size, sizes))
    z, y = synthetic(len(clusters), 2, seed=3)
    cal = rhocal.calibrator("platt").fit(z, y, clusters=clusters)
    warnings.simplefilter("always", FewSamplesWarning)
    recwarn.clear()
    fits = rhocal.bootstrap(cal, z, y, n_replicates=20, clusters=clusters)
    messages = [str(one.message) for one in recwarn if issubclass(one.category, FewSamplesWarning)]
    assert len(messages) == (number is not None)
    assert number is None or f"known as from {number} equal clusters" in messages[0]
    equal = replace(fits, n_variance_units=fits.n_units)
    ratio = np.ptp(fits.predict_interval(z), axis=0).mean() / np.ptp(equal.predict_interval(z), axis=0).mean()
    assert ratio > 1.2 if number == "4.72" else ratio == pytest.approx(1, abs=1e-12)


def test_weights_and_clusters_on_the_command_line_are_those_of_the_fit(tmp_path):
    """The file that is applied to has neither, and needs none."""
    clusters, weights = np.arange(250) // 5, 1.0 + np.arange(250) % 3
    np.savez(tmp_path / "fit.npz", logits=Z, labels=Y, patient=clusters, w=weights)
    np.savez(tmp_path / "new.npz", logits=Z[:20])
    cal, out = tmp_path / "cal.safetensors", tmp_path / "out.npz"
    fitted = rhocal.calibrator("isotonic").fit(Z, Y, weights, clusters=clusters)
    fitted.save(cal)

    def call(*options):
        arguments = ["apply", cal, tmp_path / "new.npz", "-o", out, *options]
        done = CliRunner().invoke(app, [str(one) for one in arguments])
        return in_options(done.exception, app) if isinstance(done.exception, InputError) else done.output

    interval = ("--interval", 0.9, "--fitted-on", tmp_path / "fit.npz", "--weights", "w")
    assert "fitted on samples of 50 clusters" in call(*interval)
    assert "--clusters" in call(*interval)
    assert not out.exists()
    call(*interval, "--clusters", "patient")
    replicates = rhocal.bootstrap(fitted, Z, Y, weights, clusters=clusters)
    with np.load(out) as file:
        np.testing.assert_allclose(
            (file["probs_low"], file["probs_high"]), replicates.predict_interval(Z[:20], level=0.9)
        )
    assert "--clusters is for intervals; give their level too" in call("--clusters", "patient")
