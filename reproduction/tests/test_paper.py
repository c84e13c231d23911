"""The paper's tables: the stored numbers, and where a network belongs."""

import json
import math
import re

import pytest

import rhocal_paper as paper
from helpers import ROOT
from rhocal.errors import FileError
from rhocal.evaluation.compare import network_name
from rhocal.numerics.bins import N_BINS
from rhocal_paper.grid import ADA, ECE, KL, MCE

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
    "batch_size": 128,
    "learning_rate": 0.1,
    "momentum": 0.9,
    "clip_norm": 3.0,
    "milestones": [0.4, 0.8],
    "decay": 0.1,
}


def test_cards_of_runs_say_the_network(tmp_path):
    changes = {"run-0-64": {}, "run-1-64": {"seed": 1}, "run-0-16": {"model_width": 16}}
    changes |= {"run-focal": {"loss": "focal"}, "run-short": {"epochs": 1}, "run-decay": {"weight_decay": 0.0}}
    changes |= {"run-momentum": {"momentum": 0.5}, "run-members": {"model_members": 4}, "run-keep": {"keep": "nll"}}
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
    assert len(others) == 6
    assert len({network.label for network in (thin, first, *others)}) == 8  # what is pooled differs in the seed alone
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
