"""Names of kernels that are no longer than names of Triton's files may be."""

from __future__ import annotations

from torchdynamo.backends.kernel_names import LONGEST, cut, short_names
from torchdynamo.graph import patches

NAME = "torch._inductor.codegen.triton.get_fused_kernel_name"


def test_long_names_are_cut() -> None:
    names = ["fused_add", "fused_" + "operator_" * 30, "fused_" + "x" * (LONGEST - 7) + "__y"]
    found = [cut(lambda nodes, kind, name=name: name)([], "original_aten") for name in names]
    assert found[0] == "fused_add"
    assert found[1] == names[1][:LONGEST].rstrip("_")
    assert found[2] == names[2][: LONGEST - 1]
    assert all(len(f"triton_red_{name}_1000") < 150 for name in found)


def test_names_are_as_before_when_a_graph_is_compiled() -> None:
    owner, name = patches.place(NAME)
    before = getattr(owner, name)
    with short_names():
        assert getattr(owner, name) is not before
    assert getattr(owner, name) is before
