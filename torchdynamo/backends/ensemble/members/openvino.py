"""Run graphs in OpenVINO, with the parameters as constants where the options allow it, else as inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchdynamo.backends.ensemble.exported import Exported, exported, last_line, undisturbed_build
from torchdynamo.backends.ensemble.foreign_run import ForeignRun
from torchdynamo.backends.ensemble.integer_values import Check, Integers, index_checks, must_be_within
from torchdynamo.backends.ensemble.member import Declined, Member, register_member
from torchdynamo.backends.ensemble.requirements import FOREIGN, on_cpu, package
from torchdynamo.backends.ensemble.subgraph import Subgraph
from torchdynamo.backends.ensemble.trusted_operators import must_be_trusted

_DTYPES = frozenset({torch.float32, torch.float16, torch.bool, torch.int64, torch.int32})
_UNTRUSTED = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_LARGEST = 1 << 24  # it computes integers in int32 or float32


def build(subgraph: Subgraph) -> ForeignRun:
    """Convert the graph and compile it for the CPU. Raises Declined for what the conversion cannot do."""
    form = exported(subgraph)
    threads = torch.get_num_threads()
    with undisturbed_build():
        integers = Integers(form.program)
        must_be_trusted(form.program, integers, dtypes=_DTYPES, without=_UNTRUSTED)
        checks = index_checks(form.program, integers) + _small_integers(form, integers)
        run = ForeignRun(form, Requests(form, threads), checks, threads)
        return run.tried([subgraph.example_inputs[position] for position in subgraph.moving])


def _small_integers(form: Exported, integers: Integers) -> list[Check]:
    found: list[Check] = []
    for node in form.program.graph.nodes:
        example = node.meta.get("val")
        if isinstance(example, torch.Tensor) and example.dtype in (torch.int64, torch.int32):
            found += must_be_within(integers, node, -_LARGEST, _LARGEST, f"an integer of {node.name}")
    return found


def _converted(form: Exported) -> Any:
    """Return the program as OpenVINO's model. (`openvino.convert_model` does it too, and reports by network.)"""
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    frontend = FrontEndManager().load_by_framework("pytorch")
    decoder = TorchFXPythonDecoder.from_exported_program(form.program, dynamic_shapes=False)
    return frontend.convert(frontend.load(decoder))  # which need the decoder alive


class Request(NamedTuple):
    """An infer request of OpenVINO, with memory of its own that it is bound to while nobody uses it."""

    request: Any
    inputs: list[Any]
    outputs: list[Any]


class Requests:
    """A compiled model with an infer request for each call that runs at once; it keeps no caller's memory alive."""

    def __init__(self, form: Exported, threads: int) -> None:
        import openvino

        try:
            self.model = openvino.Core().compile_model(
                _converted(form),
                "CPU",
                {
                    "INFERENCE_PRECISION_HINT": "f32",
                    "PERFORMANCE_HINT": "LATENCY",
                    "INFERENCE_NUM_THREADS": threads,
                    "NUM_STREAMS": 1,
                    "ENABLE_CPU_PINNING": False,
                },
            )
        except Exception as error:
            raise Declined(f"OpenVINO cannot convert it: {last_line(error)}") from error
        inputs, outputs = len(form.program.graph_signature.user_inputs), form.outputs
        if len(self.model.inputs) != inputs or len(self.model.outputs) != len(outputs):
            raise Declined("the conversion to OpenVINO dropped an input or a result")
        self.tensor = openvino.Tensor
        self.idle: deque[Request] = deque([self._request()])
        found = [each.element_type.to_dtype() for each in self.model.outputs]
        if found != [torch.empty(0, dtype=each.dtype).numpy().dtype for each in outputs]:
            raise Declined("the conversion to OpenVINO changed the dtype of a result")

    def _request(self) -> Request:
        request = self.model.create_infer_request()
        return Request(request, [*request.input_tensors], [*request.output_tensors])

    def __call__(self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        """Run the model. Raises what the runtime raises."""
        try:
            taken = self.idle.pop()
        except IndexError:
            taken = self._request()
        request, tensor = taken.request, self.tensor
        try:
            for i, each in enumerate(inputs):
                request.set_input_tensor(i, tensor(each.detach().numpy(), shared_memory=True))
            for i, each in enumerate(results):
                request.set_output_tensor(i, tensor(each.numpy(), shared_memory=True))
            request.infer()
        finally:
            for i, each in enumerate(taken.inputs):
                request.set_input_tensor(i, each)
            for i, each in enumerate(taken.outputs):
                request.set_output_tensor(i, each)
        self.idle.append(taken)


MEMBER = register_member(
    Member(
        name="openvino",
        build=build,
        requires=(
            *FOREIGN,
            on_cpu,
            package("openvino", "openvino"),
        ),
        cost=2.0,
        rank=70,
        isolated=True,
        makes_constants=True,
        has_threads=True,
    )
)
