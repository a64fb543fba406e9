"""What programs of h5py calls do otherwise through h5pyd 1.0.0, each difference by its name.

`KNOWN` are met by random programs, `AVOIDED` are not drawn. The rows say whose limit it is. None is the server's.
One that no steps show for certain: HDF5 frees an object that has lost its last link, and what a reference leads to
then is chance; here an object is there until it is deleted by its id. Programs do not follow such references.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.programs.program import Program, Session, Step
from tests.support.programs.program_run import Difference, Known, refused
from tests.support.programs.verb import Failure

H5PYD = "h5pyd 1.0.0"


def _reference_as_bytes(difference: Difference) -> bool:
    found = difference.found
    if difference.expected == "null reference":
        return found in (b"", None)
    return difference.expected == "reference" and isinstance(found, bytes) and found[:1] in b"gdt"


def _empty_as_zero(difference: Difference) -> bool:
    expected, found = difference.expected, difference.found
    if difference.step.verb == "read" and difference.trail in (("type",), ("shape",)):
        return found == ("int" if difference.trail == ("type",) else ())
    return expected in ([], b"") and type(found) is int and found == 0


def _complex_as_compound(difference: Difference) -> bool:
    expected, found = difference.expected, difference.found
    if expected == "<c16" and isinstance(found, dict):
        return list(found) == ["r", "i"]
    if not (isinstance(found, list) and len(found) == 2 and isinstance(expected, str)):
        return False
    return complex(expected) == complex(*map(float, found))


def _not_converted(difference: Difference) -> bool:
    if difference.step.verb != "read_as" or difference.trail[:1] not in (("type",), ("value",)):
        return False
    return difference.trail == ("type",) or float(difference.expected) == float(difference.found)


def _list_alone(difference: Difference) -> bool:
    index = difference.step.arguments.get("index")
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    return difference.step.verb == "read" and isinstance(index, list) and bool(difference.trail)


def _flat(value: Any) -> list[Any]:
    return [part for item in value for part in _flat(item)] if isinstance(value, list) else [value]


def _other_class(difference: Difference) -> bool:
    expected, found = difference.expected, difference.found
    return isinstance(expected, Failure) and isinstance(found, Failure) and "status" not in found.text


SCALES = {"DIMENSION_LABELS", "DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME"}

KNOWN: tuple[Known, ...] = (
    Known(
        "references are read as bytes",
        H5PYD,
        "It gives the id of the object, which it takes as a key as well as a reference.",
        _reference_as_bytes,
    ),
    Known(
        "compounds of one dimension are tables",
        H5PYD,
        "Its class Table is a Dataset with more methods.",
        lambda it: (it.expected, it.found) == ("Dataset", "Table"),
    ),
    Known(
        "complex numbers of datasets are compounds",
        H5PYD,
        "It writes them as h5py does, with the fields r and i, and puts together those of attributes only.",
        _complex_as_compound,
    ),
    Known(
        "an empty sequence is 0",
        H5PYD,
        "So it decodes elements of variable length that have nothing in them.",
        _empty_as_zero,
    ),
    Known(
        "the name of a group made with those above it lacks them",
        H5PYD,
        "It puts the name together from the group that it began at.",
        lambda it: (
            it.step.verb in ("create_group", "require_group")
            and isinstance(it.found, str)
            and str(it.expected).rpartition("/")[2] == it.found.rpartition("/")[2]
        ),
    ),
    Known(
        "the fill value of text is str",
        H5PYD,
        "It does not encode it, as it does values that are read.",
        lambda it: (
            it.trail == ("fillvalue",) and isinstance(it.found, str) and it.found.encode() == it.expected
        ),
    ),
    Known(
        "an object of several links is visited by another of them",
        H5PYD,
        "It walks deeper before it walks on, from the last link to the first; which link is met first differs.",
        lambda it: it.step.verb == "visit" and isinstance(it.expected, str) and isinstance(it.found, str),
    ),
    Known(
        "what a region selects has another shape",
        H5PYD,
        "h5py gives one dimension, or none of those of length 1 but where it selects a block.",
        lambda it: it.step.verb == "follow_regions" and _flat(it.expected) == _flat(it.found),
    ),
    Known(
        "fletcher32 for elements of variable length",
        "HDF5",
        "It has the references to elements checked, and refuses types that hold any; REST has the elements.",
        lambda it: it.step.verb == "create_dataset" and refused(it.expected, "not suitable for filters"),
        ends=True,
    ),
    Known(
        "unset elements of variable length in a fill value are 0",
        H5PYD,
        "It has no null string or sequence; h5py gives None.",
        lambda it: it.trail[:1] == ("fillvalue",) and it.expected in (None, b"") and it.found in (0, "", b""),
    ),
    Known(
        "an array field of a scalar dataset is not written",
        H5PYD,
        "It takes the field's dimensions for those of the data.",
        lambda it: it.step.verb == "write_field" and refused(it.found, "Expected scalar array for scalar"),
        ends=True,
    ),
    Known(
        "chunked datasets without maxshape are not shrunk",
        H5PYD,
        "h5py makes the extent the maximum; h5pyd sends none, and then the extent is fixed.",
        lambda it: it.step.verb.startswith("resize") and refused(it.found, "Dataset is not resizable"),
        ends=True,
    ),
    Known(
        "the text of dimension scales is UTF-8",
        H5PYD,
        "It writes the attributes of scales and labels as any text, HDF5 as ASCII.",
        lambda it: (
            bool(SCALES & set(it.trail)) and ("type" in it.trail or it.expected == str(it.found).encode())
        ),
    ),
    Known(
        "a field that is a compound is not read alone",
        H5PYD,
        "It looks for the field inside of what it read, which is the field already.",
        lambda it: it.step.verb == "read_field" and refused(it.found, "no field of name"),
    ),
    Known(
        "paths do not go through soft links",
        H5PYD,
        "It follows soft links by their name in their group, not in a path.",
        lambda it: refused(it.found, "Unable to follow link type"),
        ends=True,
    ),
    Known(
        "a maximum of 0 is none",
        H5PYD,
        "0 is its word for unlimited.",
        lambda it: it.trail[:1] == ("maxshape",) and 0 in it.expected and None in it.found,
    ),
    Known(
        "elements of an array type are not written by a list",
        H5PYD,
        "It takes the array's dimensions for those of the selection.",
        lambda it: it.step.arguments.get("type") == "array" and refused(it.found, "fancy selection shape"),
        ends=True,
    ),
    Known(
        "one value is not written to lists and masks",
        "h5py",
        "It broadcasts to blocks only.",
        lambda it: it.found is None and refused(it.expected, "Broadcasting is not supported for complex"),
        ends=True,
    ),
    Known(
        "nothing is written, of a shape that does not fit",
        H5PYD,
        "It does not look at the shape where nothing is selected.",
        lambda it: it.found is None and refused(it.expected, "Can't broadcast (0,"),
    ),
    Known(
        "a scalar is read with all its fields",
        H5PYD,
        "It does not look at the fields asked for.",
        lambda it: (
            it.step.verb == "read_field"
            and isinstance(it.found, list)
            and it.expected == it.found[: len(it.expected)]
        ),
    ),
    Known(
        "nothing is read directly",
        H5PYD,
        "It takes an array without elements for one without dimensions.",
        lambda it: it.step.verb == "read_direct" and refused(it.found, "only integers, slices"),
    ),
    Known(
        "a mask is of the whole dataset",
        H5PYD,
        "h5py takes one for the first dimension as well.",
        lambda it: refused(it.found, "Boolean mask shape must match"),
        ends=True,
    ),
    Known(
        "after a flush that was refused everything is sent again",
        H5PYD,
        "What it sent before the refusal is still new to it, and is there already (409).",
        lambda it: refused(it.found, "createObjects POST to datasets failed with status: 409"),
        ends=True,
    ),
    Known(
        "a sequence of one element is taken for the element",
        H5PYD,
        "It makes an array of the base type where one can be made.",
        lambda it: it.step.verb == "write" and refused(it.found, "setting an array element with a sequence"),
        ends=True,
    ),
    Known(
        "a field of a dataset with a fill value is not read before it is flushed",
        H5PYD,
        "It fills the field with the whole fill value.",
        lambda it: it.step.verb == "read_field" and refused(it.found, "invalid literal for int()"),
    ),
    Known(
        "references lead nowhere where HDF5 has freed an object",
        "the REST API",
        "An object that has lost its last link is there until it is deleted by its id.",
        lambda it: (
            it.step.verb.startswith("follow") and refused(it.expected, "Unable to open object by token")
        ),
    ),
    Known(
        "an empty scalar text is numpy's",
        H5PYD,
        "h5py gives Python's bytes.",
        lambda it: it.trail == ("type",) and (it.expected, it.found) == ("bytes", "|S0"),
    ),
    Known(
        "a scale's attributes that were flushed are not replaced",
        H5PYD,
        "See what is avoided: it sends the new ones without replace=1.",
        lambda it: it.step.verb == "scale" and refused(it.found, "attributes failed, status: 409"),
        ends=True,
    ),
    Known("astype does not convert", H5PYD, "It reads the type that is stored.", _not_converted),
    Known(
        "a list as the only index is taken for points",
        H5PYD,
        "A list for the first of several dimensions must have the shape of points.",
        lambda it: refused(it.found, "Cannot interpret 1-D array") or _list_alone(it),
        ends=True,
    ),
    Known(
        "an attribute is deleted twice",
        H5PYD,
        "It marks what is deleted, until the file is closed, and does not look at the mark.",
        lambda it: it.step.verb == "delete_attribute" and refused(it.expected) and it.found is None,
    ),
    Known(
        "/ is taken for no name",
        H5PYD,
        "A dataset created at / is one without a link.",
        lambda it: (
            it.step.arguments.get("path") == "/" and refused(it.expected, "name already", "name parameter")
        ),
        ends=True,
    ),
    Known(
        "no complex committed types",
        H5PYD,
        "It has no type for them, other than the one it makes for datasets and attributes.",
        lambda it: it.step.verb == "commit_type" and refused(it.found, "unexpected dtype kind: c"),
        ends=True,
    ),
    Known("both refuse, with errors of other classes", H5PYD, "Its errors are its own.", _other_class),
)


@dataclass(frozen=True)
class Avoided:
    """A difference that random programs keep out of, for hardly one would get past it, and the steps that show it."""

    name: str
    whose: str
    why: str
    steps: tuple[Step, ...]
    modes: tuple[str, ...] = ("w",)

    @property
    def program(self) -> Program:
        """The steps as a program; each mode after the first is that of a session of one step."""
        first = len(self.steps) - len(self.modes) + 1
        rest = [
            Session(mode, True, (step,))
            for mode, step in zip(self.modes[1:], self.steps[first:], strict=True)
        ]
        return Program(0, (Session(self.modes[0], False, self.steps[:first]), *rest))


def _step(verb: str, **arguments: Any) -> Step:
    return Step(verb, arguments)


def _data(type: str, shape: tuple[int, ...], data: int | None = 1, **options: Any) -> Step:
    return Step(
        "create_dataset",
        {"path": "/x", "type": type, "shape": shape, "data": data, "fill": None, "options": options},
    )


def _attribute(type: str, shape: tuple[int, ...]) -> Step:
    return _step("set_attribute", path="/", name="a", type=type, shape=shape, data=1)


_READ_ATTRIBUTE = _step("get_attribute", path="/", name="a")

AVOIDED: tuple[Avoided, ...] = (
    Avoided(
        "an attribute that was flushed is not replaced",
        H5PYD,
        "It sends the new one without replace=1, and HSDS answers 409 as well. Delete it and flush before.",
        (
            _attribute("<i4", ()),
            _step("flush"),
            _step("replace_attribute", path="/", name="a", value=7),
            _step("flush"),
        ),
    ),
    Avoided(
        "a name that was deleted is not given again before the deletion is flushed",
        H5PYD,
        "The new link or attribute takes the place of the mark by which it knows what to delete. Flush between.",
        (
            _step("create_group", path="/g"),
            _step("flush"),
            _step("unlink_at_once", path="/g"),
            _step("create_group", path="/g"),
            _step("flush"),
        ),
    ),
    Avoided(
        "what an earlier session made is not deleted before the first flush",
        H5PYD,
        "Until then it takes every link and attribute for one that it has not sent. Flush once before.",
        (_step("create_group", path="/g"), _step("unlink_at_once", path="/g"), _step("look")),
        ("w", "a", "r"),
    ),
    Avoided(
        "compounds with text of an attribute of several dimensions are read wrong",
        H5PYD,
        "Each element gets the values of the last one in its row.",
        (_attribute("record", (2, 3, 5)), _READ_ATTRIBUTE),
    ),
    Avoided(
        "one sequence as the value of a scalar",
        "h5py",
        "It takes the elements of the sequence for several values, and refuses them.",
        (_attribute("sequence", ()),),
    ),
    Avoided(
        "some fields of variable length written",
        "h5py",
        "numpy does not give it the memory of references in compounds.",
        (
            _data("record", (3,)),
            _step("write_field", path="/x", index=..., type="record", shape=(3,), field="s", data=1),
        ),
    ),
    Avoided(
        "a compound field written",
        H5PYD,
        "It sends the names of the fields inside for those of the field.",
        (
            _data("nested", (3,)),
            _step("write_field", path="/x", index=..., type="nested", shape=(3,), field="in", data=1),
        ),
    ),
    Avoided(
        "what was written by points or lists is read wrong before it is flushed",
        H5PYD,
        "It lays what it has not sent over what it reads, right for slices alone.",
        (
            _data("<i4", (4, 3)),
            _step("flush"),
            _step("write_at_once", path="/x", index=([0], 2), type="<i4", shape=(1,), data=5),
            _step("read", path="/x", index=0),
        ),
    ),
    Avoided(
        "a list as the only index of several dimensions",
        H5PYD,
        "It is taken for the place of a point. Give an index for each dimension.",
        (_data("<i4", (4, 3)), _step("read", path="/x", index=[0, 2])),
    ),
    Avoided(
        "a negative index beside a list",
        H5PYD,
        "Negative numbers are counted from the end only where there are no lists.",
        (_data("<i4", (4, 3)), _step("read", path="/x", index=([0, 2], -1))),
    ),
    Avoided(
        "fields of a scalar read before they are flushed",
        H5PYD,
        "A field that was written stands for the whole element until then.",
        (
            _data("row", ()),
            _step("write_field_at_once", path="/x", index=..., type="row", shape=(), field="x", data=2),
            _step("read", path="/x", index=...),
        ),
    ),
    Avoided(
        "values that were not flushed before their dataset is shrunk",
        H5PYD,
        "It cuts the selection and not the values, which the server refuses. Flush before.",
        (
            _data("<i4", (4, 3), None, chunks=(2, 2), maxshape=(4, 3)),
            _step("flush"),
            _step("write", path="/x", index=np.s_[1:4, :], type="<i4", shape=(3, 3), data=1),
            _step("resize_at_once", path="/x", shape=(2, 3)),
        ),
    ),
    Avoided(
        "values assigned to a path",
        H5PYD,
        "It has no name for the group in between. Take the group, and assign to the name.",
        (_step("create_group", path="/g"), _step("assign_path", path="/g/x", value=[1, 2])),
    ),
    Avoided(
        "a group that is visited tells its own name, and names from the root",
        H5PYD,
        "It gives the whole path of all that it visits, itself first.",
        (_step("create_group", path="/g/h"), _step("visit", path="/g")),
    ),
    Avoided(
        "a region reference as a key of a file",
        H5PYD,
        "It is one of a dataset only.",
        (
            _data("<i4", (4,)),
            _step("refer_to_regions", path="/r", target="/x", indices=[np.s_[1:3]]),
            _step("open_region", path="/r"),
        ),
    ),
    Avoided(
        "a file that is open for reading takes datasets, and keeps them until it is closed",
        H5PYD,
        "It does not look at the mode before the file is flushed.",
        (_step("flush"), _data("<i4", (4,))),
        ("w", "r"),
    ),
)
