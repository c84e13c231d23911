"""The campaign: its plan, and all of it in miniature, from official files to tables."""

import io
import json
import math
import tarfile
import zipfile
from functools import partial
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from typer.testing import CliRunner

from rhocal import optimize
from rhocal.errors import FileError, InputError
from rhocal.evaluation.rows import read_rows
from rhocal.metrics import ece
from rhocal_paper.campaign.config import read_config
from rhocal_paper.campaign.lock import lock
from rhocal_paper.campaign.scheduler import device_groups
from rhocal_paper.cli import app
from rhocal_paper.published import cells

PAPER = (files("rhocal_paper.campaign") / "paper.toml").read_text(encoding="utf-8")
RNG = np.random.default_rng(0)


def campaign(*arguments, code=0):
    """The command, in this process; what it printed on one line, however wide the screen is."""
    answer = CliRunner().invoke(app, ["campaign", *map(str, arguments)])
    assert answer.exit_code == code, (answer.output, answer.exception)
    return answer


def test_the_plan_of_the_paper_has_every_network_of_its_tables(tmp_path):
    plan = json.loads(campaign("--data", tmp_path, "--seeds", 5, "--dry-run", "--json").output)
    assert len(plan["networks"]) == 9
    assert [line["runs"] for line in plan["networks"]] == [5] * 9
    assert len(plan["commands"]) == 45
    wanted = {cell for table in range(1, 6) for cell in cells(table)}
    assert len(wanted) == 8
    assert sum(bool(line["tables"]) for line in plan["networks"]) == 8
    for table in range(1, 6):
        assert len(cells(table)) == sum(table in line["tables"] for line in plan["networks"])
    assert plan["figure2"] == [["cifar100-resnet18", "cifar100-resnet18-weight_decay0"]]
    assert len(plan["missing"]) == 5
    # By hand: ResNet-18 at 32 px has 555 million multiply-adds; 6 operations each, 45,000 images, 200 epochs, 15 TFLOP/s.
    resnet18 = plan["networks"][0]["hours_per_run"]
    assert resnet18 == pytest.approx(6 * 0.5554e9 * 45_000 * 200 / 15e12 / 3600, rel=0.01)
    assert plan["hours_left"] == pytest.approx(5 * sum(line["hours_per_run"] for line in plan["networks"]))
    text = campaign("--data", tmp_path, "--dry-run").output
    assert "--data flowers102 --model resnet50 --form imagenet --size 224 --seed 4" in text
    assert "GPU hours" in text
    assert not (tmp_path / "campaign").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[[network]]\ndata = 'cifar10'\nmodel = 'resnet19'",
            "network 1: model 'resnet19' is unknown; there are resnet18",
        ),
        ("[[network]]\ndata = 'cifar10'", "network 1: model must be given"),
        ("[[network]]\ndata = 'cifar10'\nmodel = 'vgg16'\nepoch = 3", "unknown option epoch; there are name, data"),
        ("[[network]]\ndata = 'cifar10'\nmodel = 'vgg16'\nepochs = '3'", "epochs must be a whole number; got '3'"),
        ("[[network]]\ndata = 'cifar10'\nmodel = 'vgg16'\naugment = 1", "augment must be true or false; got 1"),
        ("[[network]]\ndata = 'cifar10'\nmodel = 'vgg16'\nloss = 'focall'", "loss 'focall' is unknown"),
        ("[[network]]\ndata = 'cifar10'\nmodel = 'vgg16'\nname = '../x'", "name must be letters"),
        ("[[network]]\ndata = 'cifar10'\nmodel = 'vgg16'\nseed = 1", "--seeds says how many"),
        ("[[network]]\ndata = 'cifar10'\nmodel = 'vgg16'\n" * 2, "two networks are called cifar10-vgg16"),
        ("networks = 3", r"expected tables \[\[network\]\]"),
        ("", r"expected tables \[\[network\]\]"),
    ],
)
def test_configurations_refused(tmp_path, text, says):
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=says):
        read_config(path, tmp_path)


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(FileError, match="cannot read"):
        read_config(tmp_path / "absent.toml", tmp_path)
    (tmp_path / "x.toml").write_text("[[network", encoding="utf-8")
    with pytest.raises(FileError, match=r"cannot read .*x\.toml"):
        read_config(tmp_path / "x.toml", tmp_path)


def test_devices():
    assert device_groups("0, 2", 1) == [["0"], ["2"]]
    assert device_groups("cpu,cpu", 2) == [["cpu", "cpu"]]
    for text, n, says in (
        ("0,x", 1, "numbers separated by commas, or cpu"),
        ("", 1, "numbers separated by commas, or cpu"),
        ("0,cpu", 1, "not both"),
        ("1,1", 1, "named twice"),
        ("0,1,2", 2, "cannot be divided into groups of 2"),
    ):
        with pytest.raises(InputError, match=says):
            device_groups(text, n)


def test_one_campaign_at_a_time(tmp_path):
    with lock(tmp_path), pytest.raises(FileError, match="another campaign uses it"), lock(tmp_path):
        pass
    with lock(tmp_path):  # released
        pass


# All of it in miniature -----------------------------------------------------------------------------------------------


def noise(*shape):
    return RNG.integers(0, 256, shape, np.uint8)


def tar(path, content):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def records(labels):
    """Images as CIFAR stores them; their brightness tells the first half of the classes from the second."""
    labels = np.asarray(labels)
    bright = (labels[:, -1:] % 2) * 60
    return np.hstack([labels, noise(len(labels), 3072) // 2 + bright]).astype(np.uint8).tobytes()


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """Small files in every official format of the paper's data sets."""
    folder = tmp_path_factory.mktemp("official")
    ten = np.arange(30)[:, None] % 10
    batches = {f"data_batch_{k}.bin": records(ten) for k in range(1, 6)} | {"test_batch.bin": records(ten)}
    tar(folder / "cifar-10-binary.tar.gz", {f"cifar-10-batches-bin/{name}": data for name, data in batches.items()})
    hundred = np.stack([np.zeros(200), np.arange(200) % 100], 1)
    parts = {"train.bin": records(hundred), "test.bin": records(hundred[:100])}
    tar(folder / "cifar-100-binary.tar.gz", {f"cifar-100-binary/{name}": data for name, data in parts.items()})
    for name, n in (("train", 100), ("test", 60)):
        digits = np.where(np.arange(n) % 10 == 0, 10, np.arange(n) % 10)[:, None]
        savemat(folder / f"{name}_32x32.mat", {"X": noise(32, 32, 3, n), "y": digits.astype(np.uint8)})
    numbers = np.arange(1, 103 * 2 - 1, dtype=np.uint16)
    tar(folder / "102flowers.tgz", {f"jpg/image_{k:05d}.jpg": png(noise(32, 32, 3)) for k in numbers})
    savemat(folder / "imagelabels.mat", {"labels": ((numbers - 1) % 102 + 1)[None].astype(np.uint8)})
    savemat(
        folder / "setid.mat",
        {"trnid": numbers[None, :102], "valid": numbers[None, 102:150], "tstid": numbers[None, 150:]},
    )
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
        for c in range(4):
            for k in range(20):
                archive.writestr(f"tiny-imagenet-200/train/n{c}/images/n{c}_{k}.JPEG", png(noise(16, 16, 3)))
        lines = "".join(f"val_{k}.JPEG\tn{k % 4}\t0\t0\t9\t9\n" for k in range(40))
        archive.writestr("tiny-imagenet-200/val/val_annotations.txt", lines)
        for k in range(40):
            archive.writestr(f"tiny-imagenet-200/val/images/val_{k}.JPEG", png(noise(16, 16, 3)))
    return folder


@pytest.fixture(scope="module")
def miniature(official, tmp_path_factory):
    """A campaign of the paper's own configuration, but thin and for one epoch, with two seeds on two devices."""
    folder = tmp_path_factory.mktemp("campaign")
    config = folder / "mini.toml"
    text = PAPER.replace("size = 224", "size = 32").replace(
        "\n[[network]]", "\n[defaults]\nwidth = 2\nepochs = 1\n\n[[network]]", 1
    )
    config.write_text(text, encoding="utf-8")
    arguments = [config, "--data", official, "--gpus", "cpu,cpu", "--seeds", 2, "-o", folder / "runs"]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("sgd", "adam"):  # tested elsewhere: here 20 steps are enough
            patch.setattr(optimize, name, partial(few_steps, getattr(optimize, name)))
        yield folder / "runs", arguments, campaign(*arguments)


def few_steps(real, *arguments, **options):
    return real(*arguments, **(options | {"n_steps": 20}))


def test_from_official_files_to_tables(miniature):
    runs, _, answer = miniature
    assert len(list(runs.glob("*/logits.npz"))) == 18
    assert "18 of 18" in answer.output
    for table in range(1, 6):
        rows = read_rows(runs / "tables" / f"table{table}.csv")
        assert {row["split"] for row in rows} == {"official"}
        networks = {row["network"] for row in rows}
        assert {name[-1] for name in networks} == {"0", "1"}  # both seeds
        assert {name.rpartition("-")[0] for name in networks if "decay" not in name} >= {
            name for name in ("cifar100-resnet34-width2-epochs1",) if table > 1
        }
        assert not [row["note"] for row in rows if row["note"].startswith("no result")]
    page = (runs / "tables" / "README.md").read_text(encoding="utf-8")
    assert "| 2 | stand-in |" in page
    assert "no verdict" not in page
    assert (runs / "tables" / "figure2.svg").is_file()


def test_tables_are_fitted_on_validation_and_measured_on_test(miniature):
    """The uncalibrated row is the ECE of the test set, and the page has mean ± standard deviation over seeds."""
    runs, _, _ = miniature
    values = []
    for seed in (0, 1):
        name = f"svhn-resnet18-width2-epochs1-{seed}"
        with np.load(runs / name / "logits.npz") as file:
            values.append(ece(file["logits_test"], file["labels_test"], kind="logits"))
            sizes = len(file["labels_val"]), len(file["labels_test"])
        (row,) = [
            row for row in read_rows(runs / "tables" / "table1.csv")
            if (row["network"], row["method"]) == (name, "identity")
        ]  # fmt: skip
        assert float(row["ece"]) == pytest.approx(values[-1], rel=1e-4)
        assert (int(row["n_calibration"]), int(row["n_test"])) == sizes == (10, 60)
    assert values[0] != values[1]
    mean, sd = np.mean(values), np.std(values, ddof=1)
    page = (runs / "tables" / "table1.md").read_text(encoding="utf-8")
    section = page.split("## SVHN, ResNet18")[1].split("\n## ")[0]
    (line,) = [line for line in section.splitlines() if line.startswith("| ECE | `identity`")]
    ours = line.split("|")[4].split("±")
    assert [float(part) for part in ours] == pytest.approx([mean, sd], abs=1.1e-4)
    assert not math.isnan(sd)


def test_a_second_call_goes_on_and_names_what_fails(miniature):
    """Two runs are not finished: one goes on from its checkpoint, the checkpoint of the other is torn. All else is kept."""
    runs, arguments, _ = miniature
    torn, good = (runs / f"cifar10-resnet34-width2-epochs1-{seed}" for seed in (0, 1))
    before = (good / "logits.npz").read_bytes()
    whole = (torn / "checkpoint.pt").read_bytes()
    for folder in (torn, good):
        (folder / "logits.npz").unlink()
    (torn / "checkpoint.pt").write_bytes(whole[: len(whole) // 2])
    times = {path: path.stat().st_mtime_ns for path in runs.glob("*/logits.npz")}
    text = campaign(*arguments, "--gpus", "cpu", code=1).output
    assert "2 runs left" in text
    assert text.count("begins on cpu") == 2
    assert "failed: cifar10-resnet34-width2-epochs1-0: " in text
    assert "damaged, or not a checkpoint of ours; remove it" in text
    assert (good / "logits.npz").read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert all(f"table {table}: 0 fits" in text for table in range(1, 6))
    seen = {row["network"] for row in read_rows(runs / "tables" / "table1.csv")}
    assert good.name in seen
    assert torn.name not in seen


def test_a_folder_of_other_runs_is_refused(miniature, tmp_path):
    _, arguments, _ = miniature
    other = tmp_path / "other.toml"
    text = arguments[0].read_text(encoding="utf-8")
    other.write_text(text.replace("epochs = 1\n", "epochs = 1\nmomentum = 0.5\n"), encoding="utf-8")
    answer = CliRunner().invoke(app, ["campaign", *map(str, [other, *arguments[1:]])])
    assert isinstance(answer.exception, FileError)
    assert "holds a run with other settings: momentum was 0.9 and is 0.5" in str(answer.exception)


def test_missing_images_are_an_error_before_anything_is_written(tmp_path):
    arguments = ["campaign", "--data", str(tmp_path / "nowhere"), "--gpus", "cpu", "-o", str(tmp_path / "x")]
    missing = CliRunner().invoke(app, arguments)
    assert isinstance(missing.exception, FileError)
    assert "no CIFAR-100 in" in str(missing.exception)
    assert not (tmp_path / "x").exists()
