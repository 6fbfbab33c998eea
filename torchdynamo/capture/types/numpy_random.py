"""NumPy's generators of random numbers: once the frame has seeded one, what it draws is known.

A generator of our own draws while the frame is captured, and the program's is left in the state that this one has then.
What is drawn before that is a matter of the graph (numpy_draws.py).
"""

from __future__ import annotations

import types
from typing import Any

from torchdynamo.capture.torch import numpy_arrays
from torchdynamo.capture.types.numpy_draws import drawing, shares_no_bits
from torchdynamo.capture.vm.emitted_calls import push_call, replay_call
from torchdynamo.capture.vm.heap import MISSING, Entity
from torchdynamo.capture.vm.machine import Machine
from torchdynamo.capture.vm.model import Emitter, Model, enters, function, models, rebuilds, replays
from torchdynamo.capture.vm.shadows import Shadow, method
from torchdynamo.capture.vm.wrap import enter_singleton, lift
from torchdynamo.core.signals import Break, Restart
from torchdynamo.core.source import Source
from torchdynamo.core.value import NONE, Known, Object, Value
from torchdynamo.graph.numpy_nodes import np

# What draws, and changes nothing but the generator.
DRAWS: dict[str, str] = {
    "RandomState": "beta binomial bytes chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric "
    "laplace logistic lognormal logseries multinomial multivariate_normal negative_binomial noncentral_chisquare "
    "noncentral_f normal pareto permutation poisson power rand randint randn random random_sample rayleigh "
    "standard_cauchy standard_exponential standard_gamma standard_normal standard_t tomaxint triangular uniform "
    "vonmises wald weibull zipf",
    "Generator": "beta binomial bytes chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric "
    "integers laplace logistic lognormal logseries multinomial multivariate_normal negative_binomial "
    "noncentral_chisquare noncentral_f normal pareto permutation poisson power random rayleigh standard_cauchy "
    "standard_exponential standard_gamma standard_normal standard_t triangular uniform vonmises wald weibull zipf",
}


def argument_of(vm: Machine, arg: Value) -> Any:
    """Return an argument as a real object. Ends the graph where a tensor gives it."""
    if numpy_arrays.flows(vm, arg) or numpy_arrays.holds_tensors(arg):
        raise Break("data-dependent value", name="numpy.random")
    return vm.concretely(arg)


def result_of(vm: Machine, self: Object, name: str, result: Any) -> Value:
    """Return the value of what was drawn."""
    return numpy_arrays.lift(vm, result)


SHADOW = Shadow(argument=argument_of, result=result_of)


def seeded(vm: Machine, made: Any, seed: Value) -> Any:
    """Return a generator made of a seed that is known."""
    given = vm.concretely(seed)
    if given is None:
        raise Break("builtin with effects", name="numpy.random.seed")  # by the system
    try:
        return made(given)
    except (TypeError, ValueError) as error:
        raise vm.refused(error) from None


def reseed(vm: Machine, self: Object, seed: Value = NONE) -> Value:
    entity = vm.entity(self)
    if entity.real is not MISSING and entity.source is not None:  # others are not seeded so
        bits = type(entity.real._bit_generator)
        if bits is not np.random.MT19937:
            raise Break("builtin with effects", name="numpy.random.seed")
        vm.guard(Source("attr", entity.source, "_bit_generator"), "TYPE_MATCH", bits)
        shares_no_bits(vm, entity)
    made = seeded(vm, np.random.RandomState, seed)
    vm.effects.items(entity)
    entity.items = made
    return NONE


def seed_all(vm: Machine, seed: Value = NONE) -> Value:
    """Model `numpy.random.seed`."""
    return vm.call_method(lift(vm, np.random.mtrand._rand), "seed", seed)


def new_state(vm: Machine, cls: Known, seed: Value = NONE) -> Value:
    return vm.new(cls.obj, items=seeded(vm, np.random.RandomState, seed))


def init_state(vm: Machine, self: Object, seed: Value = NONE) -> Value:
    return NONE


def default_rng(vm: Machine, seed: Value = NONE) -> Value:
    if seed.__class__ is Object and issubclass(seed.pytype, np.random.Generator):
        return seed
    return vm.new(np.random.Generator, items=seeded(vm, np.random.default_rng, seed))


# Functions that Cython compiled: of a type of its own since its version 3, else like those of C.
CYTHON: Any = None if np is None else type(np.random.default_rng)


def named_method(cls: type, name: str, row: Model) -> None:
    """Register the model of a method, which is a function by itself where Cython's have their own type, or Python's."""
    found = cls.__dict__.get(name)
    if found is not None:
        models(cls, name)(row)
        if type(found) in (CYTHON, types.FunctionType):
            function(found)(row)


def bind(vm: Machine, self: Value, obj: Value, cls: Value = NONE) -> Value:
    """Make a method of a function of a class."""
    return self if obj.__class__ is Known and obj.obj is None else vm.new(types.MethodType, __self__=obj, __func__=self)


def bits_state(vm: Machine, self: Value) -> Value:
    """Raise Break: the state is another after each draw, and draws happen when the graph runs."""
    raise Break("unsupported attribute", name="state", type=self.pytype.__name__)


def replay_state(emit: Emitter, entity: Entity) -> None:
    replay_call(emit, np.random.RandomState.set_state, entity, Frozen(entity.items.get_state(legacy=False)))


class Frozen(dict):  # type: ignore[type-arg]
    """A generator's state, as a constant of code."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def rebuild_state(emit: Emitter, entity: Entity) -> None:
    if entity.items is None or entity.pytype is not np.random.RandomState:
        raise Restart(entity.born - 1)
    push_call(emit, generator_in, np.random.RandomState, Frozen(entity.items.get_state(legacy=False)))


def rebuild_generator(emit: Emitter, entity: Entity) -> None:
    if entity.items is None or type(entity.items.bit_generator) is not np.random.PCG64:
        raise Restart(entity.born - 1)
    push_call(emit, generator_in, np.random.Generator, Frozen(entity.items.bit_generator.state))


def generator_in(cls: Any, state: Any) -> Any:
    """Make a generator in this state."""
    if cls is np.random.RandomState:
        made = np.random.RandomState(0)
        made.set_state(state)
        return made
    bits = np.random.PCG64(0)
    bits.state = state
    return np.random.Generator(bits)


if np is not None:
    for _kind, _names in DRAWS.items():
        for _name in _names.split():
            named_method(getattr(np.random, _kind), _name, drawing(_name, method(SHADOW, _name)))
    for _bits in (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64):
        models(_bits, ".state")(bits_state)
    models(np.random.BitGenerator, ".state")(bits_state)
    named_method(np.random.RandomState, "seed", reseed)
    function(np.random.seed)(seed_all)
    if CYTHON is not types.BuiltinFunctionType:
        enters(CYTHON)(enter_singleton)
        models(CYTHON, "__get__")(bind)
    models(np.random.RandomState, "__new__")(new_state)
    models(np.random.RandomState, "__init__")(init_state)
    function(np.random.default_rng)(default_rng)
    replays(np.random.RandomState)(replay_state)
    rebuilds(np.random.RandomState)(rebuild_state)
    rebuilds(np.random.Generator)(rebuild_generator)
