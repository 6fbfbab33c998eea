"""Capture recurrent layers over sequences of dynamic length.

torch's rule for fake tensors runs the layer step by step, and so specializes the length. The metadata of its results
depends on the length in one size only, so it is computed from the first step. A tracer would specialize the length as
well: graphs with such layers run in eager. So do single nodes that a tracer has no operators for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

LSTM = torch.lstm
RECURRENT = frozenset({LSTM, torch.gru, torch.rnn_tanh, torch.rnn_relu})
BATCH_FIRST = 8  # position of the argument `batch_first`


def trains(node: torch.fx.Node) -> bool:
    """Return whether a node is a recurrent layer with gradients."""
    return node.target in RECURRENT and any(
        each.requires_grad for each in node.meta["example_value"] if isinstance(each, torch.Tensor)
    )


def drops(node: torch.fx.Node) -> bool:
    """Return whether a node is a recurrent layer with dropout between its layers, which a tracer leaves out."""
    if node.target not in RECURRENT:
        return False
    first = 5 if is_packed(node.args) else 4
    settings: Any = node.args[first : first + 3]
    layers, probability, training = settings
    return bool(layers != 1 and probability != 0 and training is not False)


def runs_as_it_is(node: torch.fx.Node) -> bool:
    """Return whether a node must run in eager: no tracer knows all recurrent kernels with gradients, nor generators of
    random numbers.
    """
    return trains(node) or drops(node) or draws_from_a_generator(node)


def draws_from_a_generator(node: torch.fx.Node) -> bool:
    """Return whether random numbers are drawn from a generator that is an input of the graph."""
    return any(isinstance(each.meta.get("example_value"), torch.Generator) for each in node.all_input_nodes)


def steps_vary(gm: torch.fx.GraphModule) -> bool:
    """Return whether a recurrent layer of dynamic length would be decomposed by a tracer, step by step.

    An LSTM without gradients is one operator for a tracer, and does not count.
    """
    layers = [each for each in gm.graph.nodes if each.target in RECURRENT and (each.target is not LSTM or trains(each))]
    return any(isinstance(steps(each.args[0].meta["example_value"], each.args), torch.SymInt) for each in layers)


def steps(sequence: torch.Tensor, args: Sequence[Any]) -> Any:
    """Return the number of steps of a sequence; for packed sequences, of all together."""
    return sequence.shape[1 if not is_packed(args) and args[BATCH_FIRST] else 0]


def is_packed(args: Sequence[Any]) -> bool:
    return type(args[3]) is not bool


def without_fixed_length(fn: Any, args: tuple[Any, ...]) -> Any:
    """Return a function for fake tensors with the layer's results that does not specialize a dynamic length."""
    known = fn not in RECURRENT or is_packed(args) or not isinstance(steps(args[0], args), torch.SymInt)
    return fn if known else from_first_step(fn)


def from_first_step(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes fake results, with their history, from the first step."""

    def run_first_step(sequence: torch.Tensor, *rest: Any) -> Any:
        time = 1 if rest[BATCH_FIRST - 1] else 0
        steps = sequence.shape[time]
        if steps < 1:
            return fn(sequence, *rest)  # which raises
        results = fn(sequence.narrow(time, 0, 1), *rest)
        out = results[0].transpose(0, time)
        out = out + out.new_zeros(steps, 1, 1)
        return (out.transpose(0, time), *results[1:])

    return run_first_step
