"""The documents keep up with the tables."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import rhocal
from helpers import ROOT
from rhocal.calibrators import CALIBRATORS
from rhocal.cli import app
from rhocal.data.demo import demo_file
from rhocal.data.formats import READERS
from rhocal.objectives import OBJECTIVES

DOCS = ROOT / "docs"
PAGES = dict(
    re.findall(r"`([\w:-]+)`[^|\]\n]*\]\((methods/[\w-]+\.md)\)", (DOCS / "methods.md").read_text(encoding="utf-8"))
)
PAGES |= dict.fromkeys(("svs:field", "sms:field"), "methods/chain.md")


@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_method_has_its_page(name):
    text = (DOCS / PAGES[name]).read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert f"`{name}`" in text or ":" in name
    assert "decision" in text, "whether it keeps the decision"
    assert "sample" in text.lower(), "how many samples it needs"


def test_every_objective_is_in_the_document():
    text = (DOCS / "objectives.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in OBJECTIVES)


def test_the_readme_counts_the_methods():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    compared = re.search(
        r": (\d+) methods on each", (ROOT / "experiments/comparison/README.md").read_text(encoding="utf-8")
    )
    assert f"{len(CALIBRATORS)} in all" in text
    assert f"{compared[1]} of the {len(CALIBRATORS)} methods on all" in text


DOCUMENTS = [
    path
    for path in ROOT.rglob("*.md")  # of a template the page made from it is looked at
    if not path.name.endswith("template.md")
    and not {".venv", ".pytest_cache", "build"} & set(path.relative_to(ROOT).parts)
]


REFERENCE = {
    f"reference/{name}"
    for name in re.findall(r'"(\w+\.md)":', (ROOT / "site" / "reference.py").read_text(encoding="utf-8"))
}
"""Pages that are written from the code when the site is built."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target and target not in REFERENCE:
            linked = path.parent / Path(target)
            page = linked / "README.md" if linked.is_dir() else linked  # as hosts and the site show a folder
            assert page.exists(), f"{path.name} links to {target}"


NUMBER = r"\d[\d,]*\.?\d*"


def as_number(text):
    return float(text.replace(",", ""))


def last_digit(text):
    """What the last digit of a number that is written counts: another machine may round it otherwise."""
    return 10.0 ** -len(text.rstrip(".").partition(".")[2])


PAGES_THAT_RUN = {
    "../README.md": 1,
    "decisions.md": 4, "class_mix.md": 2, "ten_minutes.md": 3, "howto.md": 3, "concepts.md": 1, "tutorials/image_network.md": 2,
    "tutorials/tabular.md": 3, "tutorials/language_model.md": 2, "language_models.md": 2, "tutorials/monitoring.md": 3,
}  # fmt: skip
"""Page → number of texts that its snippets print."""


def write_demo(folder):
    """What pages use of `rhocal demo`; tests/cli/test_cli.py runs all of it."""
    folder.mkdir()
    (folder / "images.npz").write_bytes(demo_file("images").read_bytes())
    rhocal.RhoNormScaling().fit(*rhocal.demo_logits("cal")).save(folder / "images.safetensors")


@pytest.mark.parametrize(("page", "n_shown"), PAGES_THAT_RUN.items())
def test_a_page_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys, page, n_shown):
    """Snippets of a page in order: Python as it stands, commands, and the text that a snippet prints."""
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text(encoding="utf-8")
    names, n_texts = {}, 0
    for language, code in re.findall(r"^```(python|console|text)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(code, page, "exec"), names)  # noqa: S102 - our own page
            printed = capsys.readouterr().out
        elif language == "console":
            for line in code.splitlines():
                command, *arguments = shlex.split(line, comments=True)
                if command != "rhocal":
                    continue
                if arguments[0] == "demo":
                    write_demo(Path(arguments[2]))
                    continue
                done = CliRunner().invoke(app, arguments)
                assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"
        else:
            assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", code)
            for shown, found in zip(re.findall(NUMBER, code), re.findall(NUMBER, printed), strict=True):
                assert abs(as_number(found) - as_number(shown)) <= 1.01 * last_digit(shown), (
                    f"{page}: {found} for {shown}"
                )
            n_texts += 1
    assert n_texts == n_shown
    assert (tmp_path / "decided.npz").is_file() == (page == "decisions.md")


COMMANDS = set(typer.main.get_command(app).commands)


def test_a_page_runs_its_list_of_commands(tmp_path, monkeypatch):
    """The commands of the README, in order, on what the demo writes; the last ones on a model and a folder of the user."""
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    write_demo(Path("demo"))
    Path("demo/table.npz").write_bytes(demo_file("table").read_bytes())
    rhocal.calibrator("vector").fit(*rhocal.demo_logits("cal", "table")).save("demo/table.safetensors")
    scores = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 10]) for name in ("scores", "logits")
    ]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["scores"], ["logits"])], "model", scores[:1], scores[1:]
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), "model.onnx")
    Path("folder").mkdir()
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    section = page.partition("## Commands")[2].partition("A table of probabilities")[0]
    commands = [shlex.split(line, comments=True)[1:] for line in section.splitlines() if line.startswith("rhocal ")]
    assert {command[0] for command in commands} == COMMANDS - {"demo"}
    for arguments in commands:
        if arguments[0] == "monitor":
            CliRunner().invoke(
                app, shlex.split("apply cal.safetensors demo/images.npz --write logits -o folder/today.parquet")
            )
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{arguments}: {done.output} {done.exception}"


def test_the_index_links_every_page():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {str(path.relative_to(DOCS)) for folder in (DOCS, DOCS / "tutorials") for path in folder.glob("*.md")}
    assert pages - {"index.md"} <= set(re.findall(r"\]\(([^)#]+)", text))


NEEDED = {
    "plots": r"\bplot\b", "report": r"\breport\b", "pandas": r"to_frame\(|pandas", "sklearn": "sklearn", "onnx": r"to_onnx\(",
    "torch": r"to_torch\(",
}  # fmt: skip
"""Extra → what uses it in a snippet."""
TUTORIALS = [f"tutorials/{path.name}" for path in (DOCS / "tutorials").glob("*.md")]


@pytest.mark.parametrize("page", ["ten_minutes.md", "howto.md", *TUTORIALS])
def test_a_page_names_the_extras_of_its_snippets(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```(?:python|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    needed = {extra for extra, use in NEEDED.items() if re.search(use, code)}
    named = {extra for listed in re.findall(r"pip install '\.\[([\w,]+)\]'", text) for extra in listed.split(",")}
    assert needed == named


@pytest.mark.parametrize(
    "text", [app.info.help, (ROOT / "README.md").read_text(encoding="utf-8")], ids=["help", "README"]
)
def test_all_kinds_of_files_are_listed(text):
    assert all(re.search(rf"{re.escape(ending)}\b", text) for ending in READERS)


def test_the_recipe_for_other_engines_runs():
    """docs/scale.md has a program that runs as printed: its fit is that of all rows in memory."""
    programs = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "scale.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (recipe,) = (program for program in programs if "rhocal.profile_block(" in program)
    names = {}
    exec(compile(recipe, "scale.md", "exec"), names)  # noqa: S102 - our own page
    logits, labels = (np.concatenate(part) for part in zip(*names["blocks"], strict=True))
    alone = rhocal.TemperatureScaling().fit(logits, labels)
    assert names["calibrator"].temperature_ == pytest.approx(alone.temperature_, rel=1e-4)


def test_libraries_are_compared_in_the_versions_that_are_installed():
    text = (DOCS / "comparison.md").read_text(encoding="utf-8").replace("\n", " ")
    pinned = dict(
        re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    versions = {name.lower(): version for name, version in pinned.items()}
    named = re.findall(r"(scikit-learn|probmetrics|netcal|torchmetrics|relplot|MAPIE) (\d[\d.]*\d)", text)
    assert len(named) == 6
    assert all(versions[name.lower()] == version for name, version in named), (
        "look at the new version, then change the page"
    )
