"""Ours beside the published, and what a verdict takes."""

import math

import numpy as np
import pytest

import rhocal_paper as paper
from rhocal.evaluation.rows import Row
from rhocal_paper.grid import ECE, KL, Level, Means, overall

# Ours beside the published --------------------------------------------------------------------------------------------


def row(network, split, method, floor=0.002, note="", **figures):
    return Row(network, split, method, {"accuracy": 0.8} | figures, 0.0, 1, 1, floor, note)


def lines_of(**ece):
    """One network with these ECE values, a little noise over splits; AdaECE and MCE are the same."""
    values = dict.fromkeys(paper.GRIDS[1].entries, 0.1) | {"identity": 0.2, "rho-norm-paper": 0.05, "rho-norm": 0.001}
    values |= {name.replace("_", "-"): value for name, value in ece.items()}
    rows = [
        row("net", f"seed {k}", m, ece=v + k * 0.002, adaptive_ece=v, mce=v) for m, v in values.items() for k in (0, 1)
    ]
    return rows, {"net": paper.Network("net", "CIFAR-100", "ResNet18", follows_recipe=True)}


def test_ours_beside_the_published():
    lines = paper.lines(paper.GRIDS[1], *lines_of())
    line = next(line for line in lines if (line["metric"], line["method"]) == ("ECE", "rho-norm-paper"))
    assert line["ours"] == pytest.approx(0.051)
    assert line["ours_sd"] == pytest.approx(0.002 / math.sqrt(2))
    assert (line["n"], line["published"], line["ece_floor"], line["stand_in"]) == (2, 0.009, 0.002, False)
    own = next(line for line in lines if (line["metric"], line["method"]) == ("ECE", "rho-norm"))
    assert math.isnan(own["published"])  # our defaults are not the paper's method


@pytest.mark.parametrize(
    ("values", "verdict", "on_mce"),
    [
        ({}, "reproduced", "not reproduced"),
        ({"vector": 0.01}, "not reproduced", "reproduced"),
        ({"vector": 0.0502}, "tie", "not reproduced"),
        ({"temperature": 0.01}, "not reproduced", "reproduced"),
        ({"identity": 0.01}, "not reproduced", "reproduced"),
        ({"temperature": math.nan}, "no verdict", "no verdict"),
    ],
)
def test_verdicts_of_table_1(values, verdict, on_mce):
    found = [line["verdict"] for line in paper.verdicts(paper.GRIDS[1], *lines_of(**values))]
    assert [found[k] for k in (0, 1, 9)] == [verdict, verdict, on_mce]


def means(**values):
    return Means({(name, ECE): np.array(ece) for name, ece in values.items()})


def test_below_is_read_from_an_interval_and_a_margin():
    found = means(
        a=[0.01, 0.02, 0.03], b=[0.02, 0.03, 0.04], c=[0.03, 0.02, 0.031], d=[0.5, math.nan, 0.5],
        e=[0.0105, 0.0205, 0.0305], f=[0.0104, 0.03, 0.0204], g=[0.0112, 0.0215, 0.0314],
    )  # fmt: skip
    assert found.below("a", "b") is Level.CLEAR  # 0.01 on every split
    assert found.below("b", "a") is Level.NOT
    assert found.below("a", "g") is Level.MEAN  # lower by 0.0014 ± 0.0004, part of which is within the margin
    assert found.below("g", "a") is Level.NOT
    assert found.below("a", "c") is Level.UNKNOWN  # lower by 0.007, which differs by 0.011 from split to split
    assert found.below("c", "a") is Level.UNKNOWN  # the same the other way round
    assert found.below("a", "e") is found.below("e", "a") is Level.TIE  # by 0.0005 on every split
    assert found.below("a", "f") is Level.UNKNOWN  # by 0.0001 on the mean, and by 0.01 either way
    assert means(a=[0.01], b=[0.02]).below("a", "b") is Level.UNKNOWN  # one split shows no spread
    assert [level.verdict for level in sorted(Level)] == [
        "not reproduced", "cannot be told", "tie", "reproduced in direction", "reproduced",
    ]  # fmt: skip


def test_the_best_is_chosen_on_other_splits():
    """Of methods that are equally good the lowest on a split is low by chance: the choice must not see it."""
    found, best = means(a=[0.0, 0.2, 0.1], b=[0.2, 0.0, 0.1]).with_lowest(["a", "b"])
    assert best == "lowest on other cuts (b or a)"
    np.testing.assert_array_equal(found.values[best, ECE], [0.2, 0.2, 0.1])  # its minimum is [0, 0, 0.1]
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(400):
        noise = means(**{name: rng.normal(0.01, 0.002, 5) for name in "abcde"})
        found, best = noise.with_lowest(list("bcde"))
        gaps.append(found.gap("a", best)[0])
    assert abs(np.mean(gaps)) < 0.0002  # the lowest mean of four is 0.0009 too low
    assert means(a=[0.1], b=[0.2]).with_lowest(["a", "b"])[1] == "a"


def test_the_interval_of_a_difference_by_hand():
    """Three overlapping cuts: t(2, .975) = 4.3027 times the root of (1/3 + n_test/n_calibration) times the variance."""
    found = Means({("a", ECE): np.array([0.0, 0.001, 0.002]), ("b", ECE): np.zeros(3)}, test_ratio=2.0)
    gap, half = found.gap("a", "b")
    assert gap == pytest.approx(0.001)
    assert half == pytest.approx(4.302653 * math.sqrt((1 / 3 + 2) * 1e-6), rel=1e-6)


def test_missing_results_are_no_verdict():
    found = means(a=[0.01, 0.02, 0.03], d=[0.5, math.nan, 0.5])
    for missing in ("d", "none"):
        with pytest.raises(LookupError):
            found.below("a", missing)


def judged(table, values, *, kl=None, accuracy=None):
    """Verdicts on made-up means: method → ECE."""
    rows = [
        row(
            "net", f"seed {k}", method, ece=ece, adaptive_ece=ece, kl_to_base=(kl or {}).get(method, 0.001),
            **({"accuracy": accuracy[method]} if accuracy and method in accuracy else {}),
        )
        for method, ece in values.items()
        for k in (0, 1)
    ]  # fmt: skip
    found = paper.verdicts(paper.GRIDS[table], rows, {"net": paper.Network("net")})
    return {line["claim"]: line["verdict"] for line in found}


@pytest.mark.parametrize(
    ("alone", "kl_alone", "repaired", "verdict"),
    [
        (0.173, 0.109, 0.041, "reproduced"),  # the published numbers
        (0.080, 0.109, 0.041, "reproduced in direction"),  # far away, but better than the network itself
        (0.173, 0.004, 0.041, "not reproduced"),  # no marked deviation
        (0.030, 0.109, 0.041, "not reproduced"),  # SCE alone is fine
    ],
)
def test_vector_scaling_breaks_and_is_repaired(alone, kl_alone, repaired, verdict):
    values = {"uncalibrated": 0.172, "descent: sce": alone, "descent: sce+kl": repaired}
    found = judged(3, values, kl={"descent: sce": kl_alone, "descent: sce+kl": 0.003})
    claim = "SCE alone breaks vector scaling and KL repairs it (mini-batches, from the identity)"
    assert found[claim] == verdict
    assert found[claim.replace("mini-batches, from the identity", "exact")] == "no verdict"  # not measured here


def test_the_published_numbers_have_the_verdicts_the_paper_gives_them():
    """Each table judged on its own published numbers: the claims are the paper's, not ours."""
    three = {"uncalibrated": 0.172} | {
        p.method.replace("vector/", "descent: "): p.value for p in paper.published(3) if p.metric == ECE
    }
    three_kl = {p.method.replace("vector/", "descent: "): p.value for p in paper.published(3) if p.metric == KL}
    found = judged(3, three, kl=three_kl)
    assert [v for claim, v in found.items() if "from the identity" in claim] == ["reproduced"] * 4
    for dataset in ("CIFAR-100", "Tiny-ImageNet"):
        four = {p.method: p.value for p in paper.published(4) if p.metric == ECE and p.dataset == dataset}
        found = judged(4, four)
        assert found["the best ρ has a lower ECE than temperature scaling"] == "reproduced"
        assert found["results are smooth near ρ = 2"] == "reproduced"
        assert found["ρ = 2 is not the best: searching ρ pays"] == "reproduced"
    for dataset in ("CIFAR-100", "102 Flower"):
        of = [p for p in paper.published(5) if p.dataset == dataset]
        kl = {p.method: p.value for p in of if p.metric == KL}
        found = judged(5, {p.method: p.value for p in of if p.metric == ECE}, kl=kl)
        assert found["α has an optimum inside (ρ-norm, mean to-base)"] == "reproduced"
        assert found["KL falls as α grows (ρ-norm, mean to-base)"] == "reproduced"


def test_table_5_has_the_numbers_of_table_3_and_not_of_table_2():
    """The reason why it is measured for vector scaling too."""
    three = {(p.method, p.metric): p.value for p in paper.published(3)}
    five = {(p.method, p.metric): p.value for p in paper.published(5) if p.dataset == "CIFAR-100"}
    two = {(p.method, p.metric): p.value for p in paper.published(2) if p.model == "ResNet35"}
    assert five["alpha=0", ECE] == three["vector/sce", ECE]
    assert (five["alpha=1", ECE], five["alpha=1", KL]) == (three["vector/sce+kl", ECE], three["vector/sce+kl", KL])
    assert five["alpha=1", ECE] > 4 * two["rho-norm/sce+kl", ECE]


def test_alpha_at_an_end_is_no_optimum_inside():
    values = {
        f"alpha={alpha}": ece for alpha, ece in zip(("0", "0.01", "0.1", "1", "10", "100"), range(1, 7), strict=True)
    }
    assert judged(5, values)["α has an optimum inside (ρ-norm, mean to-base)"] == "not reproduced"
    values |= {"alpha=0": 2.1}  # 2 is the lowest now, on every split
    assert judged(5, values)["α has an optimum inside (ρ-norm, mean to-base)"] == "reproduced"
    noisy = Means({(name, ECE): np.array([value, value]) for name, value in values.items()})
    noisy.values["alpha=0", ECE][:] = 1.5, 2.7  # lower on one split, higher on the other
    claim = next(claim for claim in paper.GRIDS[5].claims if "ρ-norm, mean to-base" in claim.text)
    assert claim.on(noisy)[0] == "cannot be told"


def test_a_claim_is_what_more_than_half_agree_on():
    def of(*verdicts):
        return overall([{"verdict": verdict} for verdict in verdicts])[0]

    assert of("reproduced", "reproduced", "not reproduced") == "reproduced"
    assert of("reproduced", "not reproduced") == "not reproduced"
    assert of("reproduced", "reproduced in direction", "not reproduced", "no verdict") == "reproduced in direction"
    assert of("no verdict") == "no verdict"
    assert of("tie", "tie", "not reproduced") == "tie"


def test_networks_are_the_sample_where_methods_are_compared():
    def of(*gaps):
        return overall([{"verdict": "cannot be told", "difference": str(gap)} for gap in gaps])

    verdict, told = of(-0.010, -0.012, -0.008)  # mean −.01, sd .002: t(2, .975) · .002 / √3 = .00497
    assert verdict == "reproduced"
    assert told.endswith("over networks -0.0100, 95% interval -0.0150 to -0.0050")
    assert of(-0.0012, -0.0010, -0.0014)[0] == "reproduced in direction"  # ± .0005
    assert of(0.0012, 0.0010, 0.0014)[0] == "not reproduced"
    assert of(-0.03, 0.01, 0.005)[0] == "cannot be told"
    assert of(0.0, 0.0002, -0.0001)[0] == "tie"
    assert of(0.01, 0.012, 0.011)[0] == "not reproduced"
