"""Columns of a table and the classes that they hold: matched by name wherever columns have names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.arrays import is_tensor
from rhocal.errors import InputError, SuspiciousInputWarning, counted, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

N_SHOWN = 8
"""Names that a message shows before it ends in an ellipsis."""


DIGITS = "0123456789"

LABEL_COLUMNS = {"label", "y", "y_true", "target", "truth", "true_label", "outcome", "class"}
"""Usual names of a column of labels, in lower case, beside our own."""

OTHER_COLUMNS = LABEL_COLUMNS | {
    "id", "index", "idx", "row", "fold", "split", "weight", "weights", "sample_weight", "group", "groups", "domain",
    "predicted", "prediction", "confidence", "correct", "labels", "uuid", "timestamp",
}  # fmt: skip
"""Usual names of columns beside those of classes, in lower case; some are those that our own outputs have."""

INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__|level_\d+")
"""What pandas calls an index without a name."""


def is_index(name: str) -> bool:
    """Whether pandas gives this name to an index."""
    return INDEX.fullmatch(name) is not None


def is_other(name: str) -> bool:
    """Whether a column of this name is usually no class."""
    text = name.strip().lower()
    return is_index(name) or text in OTHER_COLUMNS or text.endswith("_id")


def _refuse_others(columns: Sequence[str], known: Iterable[Any]) -> None:
    """Raise an error if a data frame of scores has columns that are usually no classes, and that no class is named after."""
    names = {name_key(value) for value in known}
    others = [name for name in columns if is_other(name) and name_key(name) not in names]
    if others:
        raise InputError(
            f"logits have columns {shown(others)} beside those of classes; select the columns of classes",
            argument="classes",
            remedy="name the label of each column, in order",
        )


def frame_columns(scores: Any) -> tuple[str, ...] | None:
    """The names of the columns of a data frame; None for an array, and for names that only count from 0."""
    if isinstance(scores, np.ndarray) or is_tensor(scores) or not hasattr(scores, "columns"):
        return None
    is_arrow = type(scores).__module__.partition(".")[0] == "pyarrow"  # there `columns` are the data
    names = _one_level(list(scores.schema.names if is_arrow else scores.columns))
    counts = names == list(range(len(names))) and not any(
        isinstance(name, bool | np.bool_) for name in names
    )  # False == 0
    if len(names) < 2 or counts:
        return None
    return tuple(str(name) for name in names)


def _one_level(names: list[Any]) -> list[Any]:
    """Names of columns; of several levels (pandas) the one that tells the columns apart."""
    if not names or not all(isinstance(name, tuple) and len(name) == len(names[0]) for name in names):
        return names
    varying = [level for level in zip(*names, strict=True) if len(set(level)) > 1]
    if len(varying) != 1:
        raise InputError(
            f"logits have columns of {len(names[0])} levels ({shown(names)}), of which more than one differs; keep one of them "
            "(frame.columns.get_level_values(-1))"
        )
    return list(varying[0])


def match_columns(
    columns: Sequence[str],
    classes: NDArray[Any] | None,
    labels: NDArray[Any] | None,
    *,
    is_frame: bool = False,
    are_stated: bool = True,
) -> tuple[NDArray[np.intp] | None, NDArray[Any] | None]:
    """The order that puts named columns in the order of the classes, and the classes; None where the position decides.

    Without classes the labels are looked up among the names of the columns, as they are and without what all of them begin with
    or end in (``logit_cat``, ``cat_score``). Names that only count (``logit_0``, ``logit_1``) state the position. The columns
    of a data frame were not selected before: ``is_frame`` refuses those that are usually no classes. Classes that are
    not stated (``are_stated``) are those of labels: columns that count are in the order of their numbers, as without classes.
    """
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if list(columns).count(name) > 1)
        raise InputError(f"columns must have different names; {twice!r} stands there more than once")
    for what, names in (("columns", columns), ("classes", () if classes is None else classes.tolist())):
        _refuse_equal_keys(what, names)
    if is_frame:
        known = labels if classes is None else classes
        _refuse_others(columns, () if known is None else np.unique(known).tolist())
    if classes is not None:
        return _order_of_classes(columns, classes, are_stated=are_stated), classes
    if labels is None:
        return None, None
    values = {name_key(label): label for label in np.unique(labels).tolist()}
    is_text = labels.dtype.kind == "U"
    for names in spellings(columns):
        keys = [name_key(name) for name in names]
        if values.keys() <= set(keys):
            if is_text:
                return None, np.array([str(values.get(key, name)) for key, name in zip(keys, names, strict=True)])
            if names != list(columns):
                _warn_of_start(columns, labels)
            return _order_of_numbers(keys, labels.dtype)
    _refuse_other_names(columns, values, is_text=is_text)
    return _order_of_counts(columns, values, is_text=is_text), None


def _refuse_equal_keys(what: str, names: Sequence[Any]) -> None:
    """Raise an error for names such as "1" and "01", which name one class."""
    keys = [name_key(name) for name in names]
    if len(set(keys)) < len(keys):
        same = next(key for key in keys if keys.count(key) > 1)
        equal = [name for name, key in zip(names, keys, strict=True) if key == same]
        raise InputError(f"{what} must have different names; {shown(equal)} are one name")


def _warn_of_start(columns: Sequence[str], labels: NDArray[Any]) -> None:
    """Warn where numbered columns count from 1 and labels, which show neither 0 nor the last class, may count from 0."""
    last = len(columns)
    if labels.dtype.kind in "iu" and labels.max() < last and first_number(columns) == 1:
        warn(
            f"columns {shown(columns)} count from 1, and labels, which show neither 0 nor {last}, were taken for these "
            "numbers; they may count from 0 instead",
            SuspiciousInputWarning,
            argument="classes",
            remedy="name the label of each column, in order",
        )


def name_key(value: Any) -> str:
    """A name as text, numbers and truth values in one spelling: 1, "1", "1.0" and "01" are one name, True and "true" too."""
    text = str(value)
    if text.lower() in {"true", "false"}:
        return text.capitalize()
    return str(int(float(text))) if re.fullmatch(r"-?\d{1,15}(\.0*)?", text) else text


def spellings(columns: Sequence[str]) -> list[list[str]]:
    """Names as they are, without what they share, and the numbers in which alone they differ (``V1``, ``P(y=1)``).

    What all begin with, and what all end in too, is left out up to a separator: ``logit_cat``, ``p(cat)``.
    """
    prefix = _shared_start(columns)
    suffix = _shared_start([name[::-1] for name in columns])[::-1]
    before, behind = re.match(r"(.*[_\-. /:(\[=])?", prefix), re.search(r"([_\-. /:)\]%].*)?$", suffix)
    assert before is not None
    assert behind is not None
    first_digit, last_digit = prefix.rstrip(DIGITS), suffix.lstrip(DIGITS)
    cuts = [(before[0], ""), (before[0], behind[0]), (first_digit, last_digit)]
    found = [_between(columns, start, end) for start, end in cuts]
    is_number = all(name.isdecimal() for name in found[-1])
    return [list(columns), *found[:2], *(found[2:] if is_number else [])]


def _shared_start(names: Sequence[str]) -> str:
    """What all names begin with."""
    first, last = min(names), max(names)  # in the order of texts: all between them share their start
    return first[: next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _between(names: Sequence[str], start: str, end: str) -> list[str]:
    """Names without their start and end, where something is left of every name."""
    if any(len(name) <= len(start) + len(end) for name in names):
        return list(names)
    return [name[len(start) : len(name) - len(end)] for name in names]


def own_numbers(columns: Sequence[str]) -> list[str]:
    """The whole numbers in which names differ, as ``name_key`` spells them; else the names without what they begin with."""
    ways = [[name_key(name) for name in names] for names in spellings(columns)]
    return next((keys for keys in ways if all(re.fullmatch(r"-?\d+", key) for key in keys)), ways[1])


def class_order(have: Sequence[Any], wanted: Sequence[Any]) -> NDArray[np.intp] | None:
    """The columns of the wanted classes; None if they stand in that order, or if one side only counts its columns.

    Numbers in another order (2, 0, 1) are names: they are matched with classes that count.
    """
    ours, theirs = ([name_key(name) for name in names] for names in (have, wanted))
    counted = [str(k) for k in range(len(have))]
    if ours in (theirs, counted) or len(ours) != len(theirs):
        return None
    if set(ours) != set(theirs):
        if theirs == counted:
            return None
        raise InputError(f"the classes are {shown(have)}, but the calibrator was fitted with {shown(wanted)}")
    return np.array([ours.index(name) for name in theirs], np.intp)


def first_number(columns: Sequence[str]) -> int | None:
    """The first number of names that count on without a gap, from 0 or 1 and in any order; None for other names."""
    numbers = sorted(int(name) if name.isdecimal() else -1 for name in own_numbers(columns))
    return next((start for start in (0, 1) if numbers == list(range(start, start + len(columns)))), None)


def shown(names: Iterable[Any]) -> str:
    """Names for messages."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:N_SHOWN]) + (f", … ({len(texts)})" if len(texts) > N_SHOWN else "")


def check_frame(columns: Sequence[str], classes: NDArray[Any], fitted: Sequence[str] | None) -> None:
    """Raise an error if columns are named neither as the classes of a fit nor by numbers.

    Classes that only count have no names of their own: then the columns of the data frame of the fit are compared.
    """
    counts = [name_key(value) for value in classes.tolist()] == [str(k) for k in range(len(classes))]
    if fitted is not None and len(fitted) == 1:
        check_classes_named(fitted[0], columns, classes, is_frame=True)
        fitted = None
    if len(columns) == 1 or first_number(columns) is not None or (counts and fitted is None):
        return
    known = {name_key(name) for name in (fitted if counts and fitted is not None else classes.tolist())}
    if not any({name_key(name) for name in names} == known for names in spellings(columns)):
        extra = [name for name in columns if name_key(name) not in known]
        if len(columns) - len(extra) == len(known):
            raise InputError(
                f"logits have {counted(len(extra), 'column')} that the calibrator was not fitted with: {shown(extra)}. Leave "
                "out what is no class"
            )
        raise InputError(
            f"logits have columns {shown(columns)}, but the calibrator was fitted with {shown(sorted(known))}; rename the "
            "columns, or pass an array with the columns in the order of the fit"
        )


def check_classes_named(fitted: str, columns: Sequence[str], classes: NDArray[Any], *, is_frame: bool) -> None:
    """Raise an error for two columns after a fit on a single one, unless their names state that they hold the two classes."""
    keys = {name_key(value) for value in classes.tolist()}
    stated = [{name_key(name) for name in names} for names in spellings(columns)]
    if len(columns) == 1 or first_number(columns) is not None or keys in stated or {"False", "True"} in stated:
        return
    raise InputError(
        f"the calibrator was fitted on the column {fitted!r}, and the names of the columns {shown(columns)} do not state that "
        f"they hold one class each{'; pass the column of scores alone' if is_frame else ''}",
        argument=None if is_frame else "columns",
        remedy="name the column of scores",
    )


def order_of_fit(fitted: Sequence[str], classes: NDArray[Any]) -> NDArray[np.intp] | None:
    """The order in which a fit had the columns that it names: that of its classes.

    Names that share nothing with the classes stood in the order of the fit, or in that of the numbers in which they end.
    """
    is_found, order = _order_of_names(fitted, classes)
    if is_found or not _end_in_numbers(fitted):
        return order
    return _order_of_numbers(own_numbers(fitted), None)[0]


def _order_of_names(columns: Sequence[str], classes: NDArray[Any]) -> tuple[bool, NDArray[np.intp] | None]:
    """Whether names state which column is which class, and the order of the columns; None where they stand in it."""
    wanted = [name_key(value) for value in classes.tolist()]
    for names in spellings(columns):
        places = {name_key(name): j for j, name in enumerate(names)}
        if places.keys() == set(wanted):
            order = np.array([places[name] for name in wanted], np.intp)
            return True, None if (order == np.arange(len(order))).all() else order
    counted_from_0 = [str(k) for k in range(len(wanted))]
    if wanted == counted_from_0 and list(columns) != own_numbers(columns) and first_number(columns) == 1:
        return True, _order_of_numbers(own_numbers(columns), None)[0]
    return False, None


def _order_of_classes(columns: Sequence[str], classes: NDArray[Any], *, are_stated: bool) -> NDArray[np.intp] | None:
    """The order that puts columns in that of the classes; position decides where names and stated classes share nothing."""
    is_found, order = _order_of_names(columns, classes)
    if is_found:
        return order
    wanted = [name_key(value) for value in classes.tolist()]
    present = set(wanted) & {name_key(name) for names in spellings(columns) for name in names}
    if present and not _numbers_shift(columns, wanted):
        raise InputError(
            f"columns {shown(columns)} are not named as the classes {shown(classes.tolist())}: only {shown(sorted(present))} "
            "are in both; rename the columns, or pass an array"
        )
    if wanted == ["0", "1"] and _puts_true_first(columns):
        raise InputError(
            f"columns {shown(columns)} are truth values, but the classes are 0 and 1; put the column of False first"
        )
    if not are_stated:
        return _order_of_counts(
            columns, dict(zip(wanted, classes.tolist(), strict=True)), is_text=classes.dtype.kind == "U"
        )
    _refuse_descending(columns, f"classes ({shown(classes.tolist())})")
    return None


def _order_of_counts(columns: Sequence[str], values: dict[str, Any], *, is_text: bool) -> NDArray[np.intp] | None:
    """The order of columns beside labels with other names: names that count state the position, other numbers do not."""
    if first_number(columns) is not None and (not is_text or _end_in_numbers(columns)):
        return _order_of_numbers(own_numbers(columns), None)[0]
    _refuse_descending(columns, f"labels ({shown(values.values())})")
    return None


def _refuse_descending(columns: Sequence[str], what: str) -> None:
    """Raise an error for numbers in names that do not ascend: position and number state different columns."""
    if _order_of_numbers(own_numbers(columns), None)[0] is not None:
        raise InputError(
            f"columns {shown(columns)} are numbered and do not stand in the order of their numbers: unclear which column "
            f"belongs to which of the {what}; put the columns in ascending order and name the classes in this order, or "
            "rename the columns as the classes"
        )


def _numbers_shift(columns: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether numbers within names and classes ascend and none stands in its own place: -1, 1 for ``type1_x``, ``type2_x``."""
    ours = own_numbers(columns)
    if list(columns) == ours or not all(re.fullmatch(r"-?\d+", key) for key in (*ours, *wanted)):
        return False
    ascend = all([int(key) for key in keys] == sorted(int(key) for key in keys) for keys in (ours, wanted))
    return ascend and all(a != b for a, b in zip(ours, wanted, strict=True))


def _end_in_numbers(columns: Sequence[str]) -> bool:
    """Whether a number ends every name."""
    return all(name[-1:].isdecimal() for name in columns)


def _puts_true_first(columns: Sequence[str]) -> bool:
    """Whether columns are True and False in this order: by position True would be 0."""
    return any([name_key(name) for name in names] == ["True", "False"] for names in spellings(columns))


def _order_of_numbers(keys: list[str], dtype: Any) -> tuple[NDArray[np.intp] | None, NDArray[Any] | None]:
    """Columns that are named by numbers, smallest first, and these numbers unless they count from 0.

    Columns that are named by truth values stay where they are: ``pd.DataFrame(probs, columns=model.classes_)``.
    """
    if dtype is not None and dtype.kind == "b" and set(keys) == {"False", "True"}:
        return None, np.array([key == "True" for key in keys])
    if not all(re.fullmatch(r"-?\d+", key) for key in keys):
        return None, None if dtype is None else np.array(keys)
    numbers = np.array([int(key) for key in keys])
    order = np.argsort(numbers, kind="stable").astype(np.intp)
    classes = None if (numbers[order] == np.arange(len(keys))).all() else numbers[order]
    return None if (order == np.arange(len(order))).all() else order, classes


def _refuse_other_names(columns: Sequence[str], values: dict[str, Any], *, is_text: bool) -> None:
    """Raise an error where neither names nor positions state which column belongs to which label."""
    start = first_number(columns)
    if not is_text:
        if start == 1 and list(columns) == own_numbers(columns):
            raise InputError(
                f"columns {shown(columns)} count from 1, but labels hold {shown(values.values())}; rename the columns as the "
                "labels, or pass an array"
            )
        if start == 1:
            raise InputError(
                f"columns {shown(columns)} count from 1, but labels hold {shown(values.values())}",
                argument="classes",
                remedy="name the label of each column, in order",
            )
        if _puts_true_first(columns):
            raise InputError(
                f"columns {shown(columns)} are truth values, but labels hold {shown(values.values())}; give labels that are "
                "True and False, or the column of False first"
            )
        return
    if start is not None:
        return
    if "" in values:
        raise InputError("labels hold missing values (empty texts); leave those samples out")
    missing = [label for key, label in values.items() if key not in {name_key(name) for name in columns}]
    raise InputError(
        f"labels {shown(missing)} have no column of that name; the columns are {shown(columns)}",
        argument="classes",
        remedy="name the label of each column, in order",
    )
