"""Types whose methods are run on real objects while a frame is captured: which methods, and what they write to."""

from __future__ import annotations

import _random
import io
import types

import pytest
import torch
from following import check

from torchdynamo.capture.types import bytearrays, memory_files, memoryviews, random_numbers  # noqa: F401
from torchdynamo.capture.vm.model import find_slot
from torchdynamo.capture.vm.shadows import OWN_ROWS

X = torch.ones(2)
WITHOUT = {  # what they say of memory, of pickling, and how they are hashed, is left to Python
    bytearray: {"__sizeof__", "__reduce__"},
    memoryview: {"__hash__"},
    io.StringIO: set(),
    io.BytesIO: {"getbuffer"},
    _random.Random: set(),
}


@pytest.mark.parametrize("cls", WITHOUT, ids=lambda cls: cls.__name__)
def test_each_method_in_c_has_a_model(cls):
    methods = (types.MethodDescriptorType, types.WrapperDescriptorType)
    names = {name for name, found in vars(cls).items() if type(found) in methods} - OWN_ROWS - WITHOUT[cls]
    assert len(names) > 2
    assert {name for name in names if find_slot(cls, name)[0] != "model"} == set()


def written_through_a_view(x, box):
    view = memoryview(box)[1:3]
    view[0] = 7
    return x, bytes(box), view.tolist(), view.obj is box


def an_error_after_a_write(x, file):
    file = io.StringIO() if file is None else file
    try:
        file.writelines(["a", 1])
    except TypeError as error:
        return x, file.getvalue(), str(error)


def its_own_object(x, box):
    same = box
    box += b""
    return x, same is box, box.__iadd__(b"") is same


def only_read(x, box):
    return x, box.find(b"b"), box.upper(), box[1:], box == b"abc", len(box)


CASES = [
    (written_through_a_view, (X, bytearray(b"abc"))),
    (an_error_after_a_write, (X, None)),
    (its_own_object, (X, bytearray(b"abc"))),
    (only_read, (X, bytearray(b"abc"))),
]


@pytest.mark.parametrize(("fn", "args"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_as_eager(fn, args):
    check(fn, args)
