"""The paper's tables: the stored numbers, where a network belongs, ours beside the published, and what a verdict takes."""

import csv
import json
import math
import re

import numpy as np
import pytest

import rhocal_paper as paper
from helpers import ROOT, run_paper, synthetic
from rhocal import SCE, RhoNormScaling
from rhocal.data.files import read
from rhocal.errors import FileError
from rhocal.evaluation.compare import network_name
from rhocal.evaluation.rows import FAILED, Row, read_rows
from rhocal.numerics.bins import N_BINS
from rhocal.profile.statistics import Facts
from rhocal_paper.grid import ADA, ECE, KL, MCE, Level, Means, overall
from rhocal_paper.measure import draws, measure, moved, old_rows

PAGES = ROOT / "reproduction" / "pages"
METRICS = {1: {ECE, ADA, MCE}, 2: {ECE, ADA}, 3: {ECE, ADA, KL}, 4: {ECE, ADA}, 5: {ECE, KL}}


# The stored numbers ---------------------------------------------------------------------------------------------------


def test_published_numbers_are_complete():
    assert [len(paper.published(table)) for table in range(1, 6)] == [119, 16, 26, 28, 24]
    one = {(p.dataset, p.model, p.method, p.metric): (p.value, p.sd) for p in paper.published(1)}
    assert one["CIFAR-100", "ResNet18", "temperature", "ECE"] == (0.033, 0.006)  # Table 1, first row
    value, sd = one["CIFAR-100", "ResNet18", "rho-norm", "ECE"]
    assert value == 0.009
    assert math.isnan(sd)  # not printed where it is the best
    assert N_BINS == 10  # as in the paper, and what rows are measured with


def test_published_numbers_are_those_of_the_shared_file():
    shared = ROOT.parent / "shared" / "paper" / "published.csv"
    if not shared.is_file():
        pytest.skip(f"needs {shared}, which is not part of the project")
    assert (ROOT / "reproduction" / "src" / "rhocal_paper" / "published.csv").read_bytes() == shared.read_bytes()


@pytest.mark.parametrize("table", paper.GRIDS)
def test_every_published_column_is_measured(table):
    """Each published method and metric is a column of the grid, so that no number is without ours beside it."""
    grid = paper.GRIDS[table]
    assert {p.method for p in paper.published(table)} == {entry.theirs for entry in grid.entries.values()} - {None}
    assert {p.metric for p in paper.published(table)} == set(grid.metrics) == METRICS[table]


def tables_of(text):
    """Sections of a page: title → its table as rows of cells."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        found[title] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return found


@pytest.mark.parametrize("table", paper.GRIDS)
def test_every_published_number_is_on_a_page_beside_ours_or_says_what_it_needs(table):
    text = (PAGES / f"table{table}.md").read_text(encoding="utf-8")
    found = tables_of(text)
    names = {entry.theirs: name for name, entry in reversed(paper.GRIDS[table].entries.items())}
    for number in paper.published(table):
        head, _, *rows = found[f"{number.dataset}, {number.model}"]
        cells = next(row for row in rows if row[:2] == [number.metric, f"`{names[number.method]}`"])
        assert cells[2].startswith(f"{number.value:.3f}"), number
        ours = [cell for cell in cells[3:] if cell]
        section = text.split(f"## {number.dataset}, {number.model}\n")[1].split("\n## ")[0]
        assert ours or "needs a GPU: `rhocal-paper train" in section, number
        assert len(head) == len(cells)


def test_every_claim_has_a_verdict():
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    for grid in paper.GRIDS.values():
        for claim in grid.claims:
            (line,) = [
                line for line in text.splitlines() if f"[Table {grid.table}]" in line and f"| {claim.text} |" in line
            ]
            assert re.search(r"\*\*(reproduced|reproduced in direction|tie|cannot be told|not reproduced)\*\*", line), (
                line
            )
            assert line.strip(" |").split("|")[-1].strip(), "why"
    for number in (2, 3, 4):
        assert f"[Figure {number}]" in text
    assert "no verdict" not in text


# Where a network belongs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dataset", "model"),
    [
        ("cifar100_vgg16_bn", "CIFAR-100", "VGG16"),
        ("cifar10_resnet34-seed1", "CIFAR-10", "ResNet35"),
        ("CIFAR-10_ResNet-35", "CIFAR-10", "ResNet35"),
        ("tiny-imagenet resnet34", "Tiny-ImageNet", "ResNet35"),
        ("Oxford 102 Flowers resnet50", "102 Flower", "ResNet50"),
        ("flowers102_64px.tar.gz resnet50", "102 Flower", "ResNet50"),
        ("cifar100_resnet56", "CIFAR-100", None),  # not a network of the paper
        ("cifar10_resnet1810", "CIFAR-10", None),
        ("imagenet_resnet50", None, "ResNet50"),
        ("svhn_disiji_logp", "SVHN", None),
        ("fashion-mnist vgg16", None, "VGG16"),
    ],
)
def test_names_say_dataset_and_model(name, dataset, model):
    assert paper.networks.named(name) == (dataset, model)


def test_networks_stand_beside_their_own_or_for_one_of_their_dataset():
    def beside(name, table, **options):
        return paper.Network(name, *paper.networks.named(name), **options).beside(table)

    assert beside("cifar100_vgg16", 1, follows_recipe=True) == (("CIFAR-100", "VGG16"), True)
    assert beside("cifar100_vgg16", 1) == (("CIFAR-100", "VGG16"), False)  # a file without a card
    assert beside("cifar100_resnet56", 1) == (("CIFAR-100", "ResNet18"), False)
    assert beside("cifar100_resnet56", 3) == (("CIFAR-100", "ResNet35"), False)
    assert beside("cifar10_resnet18", 1) == (("CIFAR-10", "ResNet35"), False)
    assert beside("cifar10_resnet18", 3) == (None, False)
    assert beside("other", 1) == (None, False)


CARD = {
    "data": "CIFAR-10",
    "model_name": "resnet34",
    "model_width": 64,
    "weight_decay": 1e-4,
    "loss": "cross-entropy",
    "mixup": 0,
    "epochs": 200,
}


def test_cards_of_runs_say_the_network(tmp_path):
    changes = {"run-0-64": {}, "run-1-64": {"seed": 1}, "run-0-16": {"model_width": 16}}
    changes |= {"run-focal": {"loss": "focal"}, "run-short": {"epochs": 1}, "run-decay": {"weight_decay": 0.0}}
    for name, change in changes.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(CARD | change), encoding="utf-8")
        (folder / "logits.npz").touch()
    thin, first, second, *others = (paper.network_of(path) for path in paper.logits_files([tmp_path]))
    assert first == second  # seeds are pooled
    label = "CIFAR-10, ResNet35, width 64, weight decay 0.0001"
    assert first == paper.Network(label, "CIFAR-10", "ResNet35", follows_recipe=True)
    assert not any(network.follows_recipe for network in (thin, *others))  # each differs in one thing
    assert len(others) == 3
    assert ("CIFAR-10", "ResNet35") in paper.missing(1, [thin])
    assert ("CIFAR-10", "ResNet35") not in paper.missing(1, [thin, first])
    assert network_name(tmp_path / "run-0-64" / "logits.npz") == "run-0-64"
    (tmp_path / "run-0-16" / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FileError, match="not the card of a run: it lacks data"):
        paper.network_of(tmp_path / "run-0-16" / "logits.npz")
    with pytest.raises(FileError, match=r"no \.npz files"):
        paper.logits_files([tmp_path, tmp_path / "run-0-16" / "nothing"])


@pytest.mark.parametrize("table", paper.GRIDS)
def test_commands_of_missing_networks_are_commands(table):
    for command in paper.missing(table, []).values():
        words = command.split()
        assert words[:2] == ["rhocal-paper", "train"]
        assert {"--data", "--model", "-o"} <= set(words)


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
        e=[0.0105, 0.0205, 0.0305], f=[0.0104, 0.03, 0.0204],
    )  # fmt: skip
    assert found.below("a", "b") is Level.CLEAR  # 0.01 on every split
    assert found.below("b", "a") is Level.NOT
    assert found.below("a", "c") is Level.MEAN  # lower by 0.007, which differs by 0.011 from split to split
    assert found.below("c", "a") is Level.UNKNOWN  # the same the other way round
    assert found.below("a", "e") is found.below("e", "a") is Level.TIE  # by 0.0005 on every split
    assert found.below("a", "f") is Level.UNKNOWN  # by 0.0001 on the mean, and by 0.01 either way
    assert means(a=[0.01], b=[0.02]).below("a", "b") is Level.UNKNOWN  # one split shows no spread
    assert [level.verdict for level in sorted(Level)] == [
        "not reproduced", "cannot be told", "tie", "reproduced in direction", "reproduced",
    ]  # fmt: skip


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
    values = {"uncalibrated": 0.172, "sgd: sce": alone, "sgd: sce+kl": repaired}
    found = judged(3, values, kl={"sgd: sce": kl_alone, "sgd: sce+kl": 0.003})
    claim = "SCE alone breaks vector scaling and KL repairs it (mini-batches, from the identity)"
    assert found[claim] == verdict
    assert found[claim.replace("mini-batches, from the identity", "exact")] == "no verdict"  # not measured here


def test_the_published_numbers_have_the_verdicts_the_paper_gives_them():
    """Each table judged on its own published numbers: the claims are the paper's, not ours."""
    three = {"uncalibrated": 0.172} | {
        p.method.replace("vector/", "sgd: "): p.value for p in paper.published(3) if p.metric == ECE
    }
    three_kl = {p.method.replace("vector/", "sgd: "): p.value for p in paper.published(3) if p.metric == KL}
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
    assert claim.on(noisy)[0] == "reproduced in direction"


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
    assert of(-0.03, 0.01, 0.005)[0] == "reproduced in direction"
    assert of(0.0, 0.0002, -0.0001)[0] == "tie"
    assert of(0.01, 0.012, 0.011)[0] == "not reproduced"


# Measuring ------------------------------------------------------------------------------------------------------------


def test_cuts_put_tune_and_test_together(tmp_path):
    logits, labels = synthetic(300, 3)
    np.savez(tmp_path / "one.npz", logits=logits, labels=labels)
    np.savez(
        tmp_path / "two.npz", logits_val=logits[:100], labels_val=labels[:100], logits_test=logits[100:],
        labels_test=labels[100:],
    )  # fmt: skip
    for name, n_calibration in (("one", 150), ("two", 100)):
        first, second = draws(read(tmp_path / f"{name}.npz"), 2)
        calibration, test = first.calibration.predictions, first.test.predictions
        assert (calibration.n_samples, test.n_samples) == (n_calibration, 300 - n_calibration)
        assert (first.name, second.name) == ("seed 0", "seed 1")
        together = np.concatenate([calibration.logits, test.logits])
        assert sorted(together[:, 0]) == sorted(logits[:, 0])
        assert not np.array_equal(calibration.logits, second.calibration.predictions.logits)


def test_divergence_by_hand():
    """g = (1/4, 3/4), s = (1/2, 1/2): KL(g‖s) = log 2 − H(g), KL(s‖g) = −log 2 − ½ log(3/16); over two classes."""
    g, s = np.log([[0.25, 0.75]]), np.zeros((1, 2))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    found = moved(g, s)
    assert found["kl_to_base"] == pytest.approx((math.log(2) - entropy) / 2)
    assert found["kl_from_base"] == pytest.approx((-math.log(2) - math.log(3 / 16) / 2) / 2)


def test_finished_cells_are_not_run_again(tmp_path):
    logits, labels = synthetic(200, 3)
    np.savez(tmp_path / "net.npz", logits=logits, labels=labels)
    grid, output, seen = paper.GRIDS[2], tmp_path / "rows.csv", []
    once = measure(grid, [tmp_path / "net.npz"], n_seeds=2, output=output, step=seen.append)
    assert len(once) == len(seen) == 2 * len(grid.entries)
    kept = read_rows(output)
    assert [r["method"] for r in kept[: len(grid.entries)]] == list(grid.entries)
    lines = output.read_text(encoding="utf-8").splitlines()
    output.write_text("\n".join(lines[:5]) + "\n", encoding="utf-8")  # interrupted after four
    seen.clear()
    again = measure(
        grid, [tmp_path / "net.npz"], n_seeds=2, output=output, before=old_rows(output), step=seen.append
    )  # fmt: skip
    assert len(seen) == 2 * len(grid.entries) - 4
    assert [(r.split, r.method, r.values["ece"]) for r in again] == [
        (r.split, r.method, pytest.approx(r.values["ece"], rel=1e-5)) for r in once
    ]


def test_rows_of_fits_that_failed_say_so():
    assert row("net", "seed 0", "vector", note=f"{FAILED}too many classes").failed
    assert not row("net", "seed 0", "vector", note="a warning").failed


# The command line -----------------------------------------------------------------------------------------------------


def test_table_from_the_command_line(tmp_path):
    logits, labels = synthetic(600, 4)
    for name in ("cifar100_resnet50", "other", "cifar10_resnet18"):
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    rows = tmp_path / "rows.csv"
    order = ("table2", "--logits", tmp_path, "--seeds", 2, "-o", rows)
    text = run_paper(*order).stdout
    assert "cifar100_resnet50 in place of CIFAR-100, ResNet50" in text
    assert "[0.048]" in text  # published, temperature scaling
    assert "other" not in text
    assert "cifar10_resnet18" not in text  # the table has no CIFAR-10
    assert "Needs a GPU: rhocal-paper train --data cifar100 --model resnet34" in text
    n = 2 * len(paper.GRIDS[2].entries)
    assert len(rows.read_text(encoding="utf-8").splitlines()) == 1 + n
    before = rows.read_bytes()
    document = json.loads(run_paper(*order, "--resume", "--json").stdout)
    assert rows.read_bytes() == before
    assert {line["verdict"] for line in document["verdicts"]} <= {
        "reproduced", "reproduced in direction", "tie", "cannot be told", "not reproduced",
    }  # fmt: skip
    assert document["missing"][0]["model"] == "ResNet35"
    named = run_paper(*order[:3], "--seeds", 1, "--networks", "other").stdout
    assert "other: ours" in named
    assert "there is no nothing; there are" in run_paper(*order, "--networks", "nothing", code=2).stderr
    (tmp_path / "cifar100_resnet50.npz").unlink()
    assert "--all takes them" in run_paper("table2", "--logits", tmp_path, code=2).stderr
    assert "name it with -o" in run_paper("table2", "--logits", tmp_path, "--resume", code=2).stderr


@pytest.mark.parametrize("number", [3, 4])
def test_figures_from_the_command_line(tmp_path, number):
    logits, labels = synthetic(400, 3)
    np.savez(tmp_path / "net.npz", logits=logits, labels=labels)
    rows = tmp_path / "rows.csv"
    figure = tmp_path / "figure.svg"
    text = run_paper(f"figure{number}", "--logits", tmp_path / "net.npz", "-o", figure, "--rows", rows).stdout
    assert "reproduced" in text
    assert figure.read_text(encoding="utf-8").startswith("<?xml")
    with rows.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    key = "method" if number == 3 else "way"
    assert len({line[key] for line in found}) == (6 if number == 3 else 3)
    # every sample is in one bin of each panel
    panels = {(line[key], line.get("objective")) for line in found}
    assert sum(int(line["n"]) for line in found) == 200 * len(panels)


def write_run(folder, decay, amplitude, factor):
    """A finished run whose amplitude went like this, and whose logits are this large."""
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps(CARD | {"data": "made.tar.gz", "weight_decay": decay, "model_width": 8}), encoding="utf-8"
    )
    lines = [f"{epoch},{size},0.5" for epoch, size in enumerate(amplitude, 1)]
    (folder / "log.csv").write_text("\n".join(["epoch,amplitude,confidence", *lines]) + "\n", encoding="utf-8")
    logits, labels = synthetic(200, 4, scale=factor)
    np.savez(folder / "logits.npz", logits_val=logits, labels_val=labels, logits_test=logits, labels_test=labels)


def test_figure_2(tmp_path):
    write_run(tmp_path / "without", 0.0, [1.0, 1.5, 2.0, 2.5], 3.0)
    write_run(tmp_path / "with", 5e-4, [1.0, 1.2, 1.3, 1.2], 1.0)
    text = run_paper("figure2", "--runs", tmp_path, "-o", tmp_path / "f.svg", "--rows", tmp_path / "rows.csv").stdout
    assert (
        "amplitude grows without weight decay: reproduced (from 1.000 to 2.500; rank correlation with the epoch 1.00)"
        in text
    )
    assert "weight decay holds the amplitude down: reproduced in direction (ends at 1.200" in text
    assert text.count("amplitude and confidence of samples are positively correlated: reproduced") == 2
    assert len((tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()) == 1 + 8
    assert (
        "no finished runs" in run_paper("figure2", "--runs", tmp_path / "with", "-o", tmp_path / "f.svg", code=2).stderr
    )


def test_figure_2_sees_an_amplitude_that_shrinks(tmp_path):
    write_run(tmp_path / "without", 0.0, [2.0, 1.5, 1.0], 1.0)
    write_run(tmp_path / "with", 5e-4, [1.0, 2.0, 3.0], 1.0)
    text = run_paper("figure2", "--runs", tmp_path, "-o", tmp_path / "f.svg").stdout
    assert "amplitude grows without weight decay: not reproduced" in text
    assert "weight decay holds the amplitude down: not reproduced" in text


# What the study says about objectives ---------------------------------------------------------------------------------


def test_a_model_that_knows_nothing_has_the_lower_sce():
    """Always 75 % sure, and rightly so: 0.75·0.25/128. No class of 100 known, and 1 % said: 0.01·0.99/128, far less."""

    def sce(correct, confidence):
        facts = Facts(np.array(correct, float), np.full(len(correct), 1 / len(correct)), 100)
        return SCE().evaluate({"confidence": np.full(len(correct), confidence)}, facts)[0]

    good, useless = sce([1, 1, 1, 0], 0.75), sce([1] + [0] * 99, 0.01)
    assert good == pytest.approx(0.75 * 0.25 / 128)
    assert useless == pytest.approx(0.01 * 0.99 / 128)
    assert useless < good / 18


def test_reductions_of_kl_are_one_family():
    """α = 1 as a mean over samples and classes is α = 1/m as a mean over samples and 1/(128 m) as a sum over a batch."""
    logits, labels = synthetic(300, 4)

    def fitted(reduction, alpha):
        kl = f"kl(reduction={reduction})"
        return (
            RhoNormScaling.paper(rho=2.0, solver="expected", kl=kl, alpha=alpha)
            .fit(logits, labels)
            .predict_proba(logits)
        )

    mean = fitted("mean", 1.0)
    np.testing.assert_allclose(fitted("samples", 1 / 4), mean, atol=1e-6)
    np.testing.assert_allclose(fitted("sum", 1 / (128 * 4)), mean, atol=1e-6)
    assert np.abs(fitted("samples", 1.0) - mean).max() > 0.01
