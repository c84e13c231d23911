"""Fits and metrics on Ray: the same numbers as in one process, whoever holds the blocks."""

import numpy as np
import pytest

import rhocal
from rhocal.errors import InputError

ray = pytest.importorskip("ray", reason="pip install ray; `make integrations` runs this")
pytest.importorskip("ray.data", reason="pip install 'ray[data]'")
from rhocal.integrations.ray import RayExecutor, apply, ray_source  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def blocks():
    rng = np.random.default_rng(1)
    truth = [2 * rng.normal(size=(n, 80)) for n in (300, 500, 1, 400)]
    return [(np.float32(2 * z), (z + rng.gumbel(size=z.shape)).argmax(axis=1)) for z in truth]


@pytest.fixture(scope="module")
def together(blocks):
    return tuple(np.concatenate(part) for part in zip(*blocks, strict=True))


@pytest.mark.parametrize("method", ["temperature", "rho-norm", "field"])
def test_references_are_fitted_as_an_array_is(method, blocks, together):
    cal = rhocal.calibrator(method).fit(ray_source([ray.put(block) for block in blocks]))
    alone = rhocal.calibrator(method).fit(*together)
    np.testing.assert_allclose(cal.predict_proba(together[0]), alone.predict_proba(together[0]), atol=1e-5)


def test_metrics_add_up_in_the_order_of_the_blocks(blocks, together):
    refs = [
        ray.put((logits[k : k + 5], labels[k : k + 5])) for logits, labels in blocks for k in range(0, len(labels), 5)
    ]
    source = ray_source(refs)  # more blocks than one task merges
    values = rhocal.measure(source, kind="logits")
    alone = rhocal.measure(*together, kind="logits")
    assert values == pytest.approx(alone, rel=1e-9)
    assert rhocal.measure(ray_source(refs), kind="logits") == values


def test_files(blocks, together, tmp_path):
    for k, (logits, labels) in enumerate(blocks):
        np.savez(tmp_path / f"part-{k}.npz", logits=logits, labels=labels)
    source = rhocal.stream(str(tmp_path / "part-*.npz")).on(RayExecutor())
    assert rhocal.TemperatureScaling().fit(source).temperature_ == pytest.approx(
        rhocal.TemperatureScaling().fit(*together).temperature_, rel=1e-4
    )


def test_a_dataset_with_lists_and_with_one_column_for_each_class():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(600, 3))
    names, logits = np.array(["a", "b", "c"]), 3 * truth
    labels = names[(truth + rng.gumbel(size=truth.shape)).argmax(axis=1)]
    alone = rhocal.VectorScaling().fit(logits, labels)
    lists = ray.data.from_pandas(pandas.DataFrame({"logits": logits.tolist(), "y": labels})).repartition(3)
    cal = rhocal.VectorScaling().fit(ray_source(lists, labels="y"))
    np.testing.assert_allclose(cal.predict_proba(logits), alone.predict_proba(logits), atol=1e-9)
    frame = pandas.DataFrame(logits, columns=names).assign(y=labels)
    table = ray.data.from_pandas(frame)
    named = rhocal.VectorScaling().fit(ray_source(table, logits=("c", "a", "b"), labels="y"), classes=list(names))
    np.testing.assert_allclose(named.predict_proba(frame[["b", "c", "a"]]), alone.predict_proba(logits), atol=1e-9)
    rows = apply(named, table, logits=("b", "a", "c"), write="probs").to_pandas()
    np.testing.assert_allclose(np.stack(list(rows["probs"])), alone.predict_proba(logits), atol=1e-9)
    rows = apply(cal, lists, write="predicted").to_pandas()
    assert list(rows["predicted"]) == list(alone.predict(logits))


def test_errors_name_the_block(blocks):
    bad = (blocks[1][0].copy(), blocks[1][1])
    bad[0][3, 4] = np.nan
    with pytest.raises(InputError, match=r"block 1 .*NaN"):
        rhocal.TemperatureScaling().fit(ray_source([ray.put(blocks[0]), ray.put(bad)]))
    with pytest.raises(InputError, match="no column 'logits'; there are id"):
        ray_source(ray.data.range(3))
