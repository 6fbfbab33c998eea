"""Run graphs in ONNX Runtime, with the parameters as constants where the options allow it, else as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchdynamo.backends.ensemble.exported import Exported, exported, last_line, undisturbed_build
from torchdynamo.backends.ensemble.foreign_run import ForeignRun
from torchdynamo.backends.ensemble.integer_values import Integers, index_checks
from torchdynamo.backends.ensemble.member import Declined, Member, register_member
from torchdynamo.backends.ensemble.requirements import FOREIGN, on_cpu, package
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.ensemble.trusted_operators import must_be_trusted

_MOST_BYTES = 3 << 29  # of a model; protobuf holds 2 GiB
_FATAL = 4  # the level of messages that are shown


def build(subgraph: Subgraph) -> ForeignRun:
    """Convert the graph to ONNX and load it. Raises Declined for what the conversion or the runtime cannot do."""
    form = exported(subgraph)
    threads = torch.get_num_threads()
    with undisturbed_build():
        integers = Integers(form.program)
        must_be_trusted(form.program, integers)
        checks = index_checks(form.program, integers)
        run = ForeignRun(form, Session(form, _model(form), threads), checks, threads)
        return run.tried([subgraph.example_inputs[position] for position in subgraph.moving])


def _model(form: Exported) -> bytes:
    inputs = len(form.program.graph_signature.user_inputs)
    state = [*form.program.state_dict.values(), *form.program.constants.values()]
    if sum(each.nbytes for each in state if isinstance(each, torch.Tensor)) > _MOST_BYTES:
        raise Declined("the parameters take more than an ONNX model holds")
    try:
        converted = torch.onnx.export(
            form.program,
            input_names=[f"input_{i}" for i in range(inputs)],
            output_names=[f"output_{i}" for i in range(len(form.outputs))],
            dynamo=True,
            verbose=False,
        )
    except Exception as error:
        raise Declined(f"it cannot be converted to ONNX: {last_line(error)}") from error
    assert converted is not None
    return converted.model_proto.SerializeToString()


class Session:
    """An ONNX Runtime session that reads and writes the memory of tensors."""

    def __init__(self, form: Exported, model: bytes, threads: int) -> None:
        import onnxruntime
        from onnx import TensorProto

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL  # an exception says it
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise Declined(f"ONNX Runtime does not load it: {last_line(error)}") from error
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]
        if len(self.inputs) != len(form.program.graph_signature.user_inputs) or len(self.outputs) != len(form.outputs):
            raise Declined("the conversion to ONNX dropped an input or a result")
        self.types: dict[torch.dtype, Any] = {
            torch.float32: TensorProto.FLOAT,
            torch.float64: TensorProto.DOUBLE,
            torch.float16: TensorProto.FLOAT16,
            torch.bool: TensorProto.BOOL,
            torch.int64: TensorProto.INT64,
            torch.int32: TensorProto.INT32,
        }

    def __call__(self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        """Run the model. Raises what the runtime raises."""
        binding, types = self.session.io_binding(), self.types
        for name, tensor in zip(self.inputs, inputs, strict=True):
            binding.bind_input(name, "cpu", 0, types[tensor.dtype], tensor.shape, tensor.data_ptr())
        for name, tensor in zip(self.outputs, results, strict=True):
            binding.bind_output(name, "cpu", 0, types[tensor.dtype], tensor.shape, tensor.data_ptr())
        self.session.run_with_iobinding(binding)


MEMBER = register_member(
    Member(
        name="onnxruntime",
        build=build,
        requires=(
            *FOREIGN,
            on_cpu,
            package("onnxruntime", "onnxruntime"),
            package("onnx", "onnxruntime"),
            package("onnxscript", "onnxruntime"),
        ),
        cost=3.0,
        rank=60,
        isolated=True,
        makes_constants=True,
        has_threads=True,
    )
)
