"""Training itself: what a batch is, that it learns, and that an interrupted run ends as an uninterrupted one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import run, run_paper
from rhocal.errors import FileError, InputError
from rhocal.evaluation.rows import read_rows, write_rows
from rhocal.metrics import amplitude
from rhocal_paper.train import PAPER, Images, Model, Recipe, train
from rhocal_paper.train.batches import EpochDraws, Normal, augmented, epoch_batches
from rhocal_paper.train.data.dataset import dataset
from rhocal_paper.train.worker import Worker

THIN = Model("resnet18", width=2)


def stripes(n=120, side=16, seed=0):
    """Two classes that a network tells apart at once: bright at the top, or at the bottom."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    pixels = rng.integers(0, 120, (n, side, side, 3))
    for k, label in enumerate(labels):
        pixels[k, slice(0, side // 2) if label else slice(side // 2, side)] += 110
    return Images(pixels.astype(np.uint8), labels)


@pytest.fixture(scope="module")
def data():
    return dataset("stripes", stripes(), stripes(40, seed=1), ("low", "high"))


def test_the_recipe_of_the_paper():
    recipe = Recipe()
    assert (recipe.epochs, recipe.batch_size, recipe.learning_rate) == (200, 128, 0.1)
    assert (recipe.momentum, recipe.weight_decay, recipe.clip_norm) == (0.9, 1e-4, 3.0)
    assert [recipe.rate(epoch) for epoch in (0, 79, 80, 159, 160, 199)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3]
    )
    assert (PAPER["tiny-imagenet"].learning_rate, PAPER["tiny-imagenet"].batch_size) == (0.01, 64)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative"),
    ],
)
def test_recipes_refused(options, says):
    with pytest.raises(InputError, match=says):
        Recipe(**options)


def test_normalised_images_have_mean_0_and_deviation_1():
    pixels = np.random.default_rng(0).integers(0, 200, (50, 8, 8, 3), np.uint8)
    pixels[..., 2] = 7  # a constant channel divides by nothing
    seen = Normal.of(pixels).on(torch.device("cpu"))(torch.from_numpy(pixels))
    assert seen.shape == (50, 3, 8, 8)
    assert seen.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=1e-5)
    assert seen.std((0, 2, 3), correction=0).tolist() == pytest.approx([1, 1, 0], abs=1e-5)


@pytest.mark.parametrize("mirror", [True, False])
def test_augmentation_shifts_and_mirrors(mirror):
    """Every result is one of the shifts (and mirrors) of its own image, and many different ones come."""
    image = np.arange(1, 257, dtype=np.uint8).reshape(16, 16, 1)
    image[0, 0] = 255
    wide = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    allowed = {wide[y : y + 16, x : x + 16].tobytes() for y in range(5) for x in range(5)}
    if mirror:
        allowed |= {wide[y : y + 16, x : x + 16][:, ::-1].tobytes() for y in range(5) for x in range(5)}
    draws = EpochDraws.of(400, 2, Recipe(batch_size=400), 0, torch.device("cpu"), mirror=mirror)
    out = augmented(torch.from_numpy(np.stack([image] * 400)), draws.shifts, draws.mirrored)
    assert {one.numpy().tobytes() for one in out} == allowed


def batches(recipe, epoch=0, n=21):
    pixels = torch.arange(n, dtype=torch.uint8)[:, None, None, None].expand(n, 8, 8, 1)
    identity = Normal((0.0,), (1.0,))
    return list(epoch_batches(pixels, torch.arange(n), identity, recipe, epoch, mirror=True))


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own():
    recipe = Recipe(batch_size=4, augment=False)
    seen = batches(recipe)
    labels = torch.cat([batch.labels for batch in seen])
    assert len(set(labels.tolist())) == len(labels) == 20  # a single one is left over, and skipped
    assert torch.equal(torch.cat([batch.images for batch in seen])[:, 0, 0, 0], labels.float())
    assert [batch.labels.tolist() for batch in seen] == [batch.labels.tolist() for batch in batches(recipe)]
    assert labels.tolist() != torch.cat([batch.labels for batch in batches(recipe, 1)]).tolist()
    other = batches(Recipe(batch_size=4, augment=False, seed=1))
    assert labels.tolist() != torch.cat([batch.labels for batch in other]).tolist()


def test_mixup_blends_images_as_it_blends_labels():
    shares = []
    for batch in batches(Recipe(batch_size=7, augment=False, mixup=0.2)):
        blend = batch.share * batch.labels + (1 - batch.share) * batch.partners
        assert batch.images[:, 0, 0, 0].tolist() == pytest.approx(blend.tolist(), rel=1e-5)
        shares.append(batch.share)
    assert len(set(shares)) == 3


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(data, THIN, Recipe(epochs=4, batch_size=16), folder, device="cpu")
    return folder


def test_it_learns_and_writes_logits_and_a_log(data, whole):
    with np.load(whole / "logits.npz", allow_pickle=False) as file:
        assert file["classes"].tolist() == ["low", "high"]
        assert np.array_equal(file["labels_val"], data.tune.labels)
        assert np.array_equal(file["labels_test"], data.test.labels)
        assert (file["logits_test"].argmax(1) == data.test.labels).mean() > 0.9
        last = amplitude(file["logits_val"])
        tune_accuracy = (file["logits_val"].argmax(1) == data.tune.labels).mean()
    rows = read_rows(whole / "log.csv")
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4]
    assert float(rows[-1]["amplitude"]) == pytest.approx(last, rel=1e-5)
    assert float(rows[-1]["accuracy"]) == pytest.approx(tune_accuracy, rel=1e-5)
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert [float(row["learning_rate"]) for row in rows] == pytest.approx([0.1, 0.1, 0.01, 0.01])
    card = json.loads((whole / "run.json").read_text(encoding="utf-8"))
    assert (card["data"], card["model_name"], card["seed"]) == ("stripes", "resnet18", 0)


def same_logits(one, two):
    with np.load(one / "logits.npz") as a, np.load(two / "logits.npz") as b:
        return all(np.array_equal(a[name], b[name]) for name in a.files)


@pytest.mark.parametrize("stop_after", [1, 2, 4])
def test_interrupted_and_resumed_is_bit_for_bit_the_same(data, whole, tmp_path, stop_after):
    recipe = Recipe(epochs=4, batch_size=16)

    def interrupt(row):
        if row["epoch"] == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data, THIN, recipe, tmp_path, device="cpu", after_epoch=interrupt)
    assert not (tmp_path / "logits.npz").exists()
    torch.rand(5)  # whatever else used the generator in between
    train(data, THIN, recipe, tmp_path, device="cpu", resume=True)
    assert same_logits(whole, tmp_path)
    rows, again = read_rows(whole / "log.csv"), read_rows(tmp_path / "log.csv")
    for row in rows + again:
        del row["seconds"]
    assert rows == again


def test_killed_within_an_epoch(data, whole, tmp_path, monkeypatch):
    """What the half epoch learned is forgotten; the epoch runs again."""
    recipe = Recipe(epochs=4, batch_size=16)
    steps, real = [], Worker.step

    def step(self, batch):
        steps.append(1)
        if len(steps) == 10:  # seven steps an epoch
            raise KeyboardInterrupt
        return real(self, batch)

    monkeypatch.setattr(Worker, "step", step)
    with pytest.raises(KeyboardInterrupt):
        train(data, THIN, recipe, tmp_path, device="cpu")
    monkeypatch.undo()
    assert len(read_rows(tmp_path / "log.csv")) == 1
    train(data, THIN, recipe, tmp_path, device="cpu", resume=True)
    assert same_logits(whole, tmp_path)


def test_killed_between_the_last_checkpoint_and_its_log(data, whole, tmp_path, monkeypatch):
    """The log is part of the result: a run that goes on writes the rows that the checkpoint has."""
    recipe = Recipe(epochs=4, batch_size=16)

    def interrupt(path, rows):
        if len(rows) == 4:
            raise KeyboardInterrupt
        write_rows(path, rows)

    monkeypatch.setattr("rhocal_paper.train.run.write_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(data, THIN, recipe, tmp_path, device="cpu")
    monkeypatch.undo()
    train(data, THIN, recipe, tmp_path, device="cpu", resume=True)
    assert [row["epoch"] for row in read_rows(tmp_path / "log.csv")] == ["1", "2", "3", "4"]
    assert same_logits(whole, tmp_path)


def test_seeds_differ(data, whole, tmp_path):
    train(data, THIN, Recipe(epochs=1, batch_size=16, seed=1), tmp_path, device="cpu")
    assert not same_logits(whole, tmp_path)


def test_an_old_run_is_neither_overwritten_nor_mistaken(data, whole):
    with pytest.raises(FileError, match="holds a run already: --resume"):
        train(data, THIN, Recipe(epochs=4, batch_size=16), whole, device="cpu")
    with pytest.raises(FileError, match=r"another run: learning_rate was 0\.1 and is 0\.2"):
        train(data, THIN, Recipe(epochs=4, batch_size=16, learning_rate=0.2), whole, device="cpu", resume=True)


def test_a_damaged_checkpoint_is_named(data, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"half of one")
    with pytest.raises(FileError, match="damaged, or not a checkpoint"):
        train(data, THIN, Recipe(), tmp_path, device="cpu", resume=True)


def test_divergence_is_an_error(data, tmp_path):
    with pytest.raises(InputError, match=r"diverged.*lower --learning-rate"):
        train(data, THIN, Recipe(epochs=2, batch_size=16, learning_rate=1e38), tmp_path, device="cpu")


@pytest.mark.parametrize("options", [{"loss": "dual-focal", "mixup": 0.2}, {"loss": "mmce", "weight_decay": 0.0}])
def test_rivals_train(data, tmp_path, options):
    train(data, THIN, Recipe(epochs=2, batch_size=16, **options), tmp_path, device="cpu")
    rows = read_rows(tmp_path / "log.csv")
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])


def test_images_too_small_or_too_few(data, tmp_path):
    with pytest.raises(InputError, match="vgg16 needs images of at least 32 pixels a side; stripes has 16"):
        train(data, Model("vgg16", width=2), Recipe(), tmp_path, device="cpu")
    one = replace(data, train=data.train.take(np.array([0])))
    with pytest.raises(InputError, match="1 training image; batch normalisation needs two"):
        train(one, THIN, Recipe(), tmp_path, device="cpu")


def test_unknown_device(data, tmp_path):
    with pytest.raises(InputError, match="say auto, cpu or cuda"):
        train(data, THIN, Recipe(), tmp_path, device="abacus")


def test_command_line(data, tmp_path):
    """From a folder of pictures to a file that `rhocal compare` reads."""
    for split, images in (("train", data.train), ("val", data.tune), ("test", data.test)):
        for k, (pixels, label) in enumerate(zip(images.pixels, images.labels, strict=True)):
            path = tmp_path / "pictures" / split / data.classes[label] / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    order = ["--data", tmp_path / "pictures", "--model", "resnet18", "--width", 2, "--epochs", 2, "--batch-size", 16]
    order += ["--device", "cpu", "-o", tmp_path / "run"]
    text = run_paper("train", *order).stdout
    assert "rhocal compare" in text
    assert "amplitude" in text
    assert json.loads(run_paper("train", *order, "--resume", "--json").stdout)["log"] == []  # nothing was left to do
    assert "temperature" in run("compare", tmp_path / "run" / "logits.npz", "--methods", "temperature").stdout


def test_command_line_says_what_is_missing(tmp_path):
    order = ["train", "--model", "resnet18", "-o", tmp_path / "run", "--data", "cifar10", "--root", tmp_path]
    assert "cifar-10-binary.tar.gz (MD5 c32a1d4a" in run_paper(*order, code=2).stderr
    assert not (tmp_path / "run").exists()
