"""nn.Module: hooks, submodules, parameters, buffers, methods, train and eval."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from mutating import Mutation, mutation, one, setting, setting_code, x
from torch import nn


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(2, 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = linear()
        self.act = nn.ReLU()
        self.scale = 2.0
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc(x)) * self.scale + self.offset


class Doubling(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


def on_block(change: Any, seen: bool = True, free: bool = False, make: Any = Block) -> Mutation:
    block = make()
    return Mutation(block, one, lambda stack: change(block), seen, free)


@mutation
def forward_hook_added() -> Mutation:
    return on_block(lambda m: m.register_forward_hook(lambda mod, args, out: out + 1))


@mutation
def forward_hook_added_to_a_child() -> Mutation:
    return on_block(lambda m: m.fc.register_forward_hook(lambda mod, args, out: out + 1))


@mutation
def forward_pre_hook_added() -> Mutation:
    return on_block(lambda m: m.register_forward_pre_hook(lambda mod, args: (args[0] + 1,)))


@mutation
def forward_hook_removed() -> Mutation:
    block = Block()
    handle = block.fc.register_forward_hook(lambda mod, args, out: out + 1)
    return Mutation(block, one, lambda stack: handle.remove())


@mutation
def forward_pre_hook_removed() -> Mutation:
    block = Block()
    handle = block.fc.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    return Mutation(block, one, lambda stack: handle.remove())


@mutation
def forward_hooks_change_places() -> Mutation:
    block = Block()
    block.fc.register_forward_hook(lambda mod, args, out: out + 1)
    block.fc.register_forward_hook(lambda mod, args, out: out * 3)
    hooks: OrderedDict[int, Any] = block.fc._forward_hooks
    return Mutation(block, one, lambda stack: hooks.move_to_end(next(iter(hooks))))


@mutation
def forward_hook_with_kwargs_added() -> Mutation:
    return on_block(
        lambda m: m.fc.register_forward_hook(lambda mod, args, kwargs, out: out * len(args) + 1, with_kwargs=True)
    )


@mutation
def global_forward_hook_added() -> Mutation:
    from torch.nn.modules.module import register_module_forward_hook

    def change(stack: Any) -> None:
        stack.callback(register_module_forward_hook(lambda mod, args, out: out + 1).remove)

    return Mutation(Block(), one, change)


@mutation
def global_forward_pre_hook_added() -> Mutation:
    from torch.nn.modules.module import register_module_forward_pre_hook

    def change(stack: Any) -> None:
        stack.callback(register_module_forward_pre_hook(lambda mod, args: (args[0] + 1,)).remove)

    return Mutation(Block(), one, change)


def gradient(fn: Any) -> Any:
    """The program with its backward pass: what hooks on gradients can change."""

    def run(arg: torch.Tensor) -> Any:
        arg.requires_grad_()
        fn(arg).sum().backward()
        return arg.grad

    return run


@mutation
def full_backward_hook_added() -> Mutation:
    block = Block()
    return Mutation(
        gradient(block), one, lambda stack: block.fc.register_full_backward_hook(lambda m, i, o: (i[0] * 3,))
    )


@mutation
def full_backward_pre_hook_added() -> Mutation:
    block = Block()
    return Mutation(
        gradient(block), one, lambda stack: block.fc.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,))
    )


@mutation
def tensor_hook_added_to_the_input() -> Mutation:
    hooks: list[Any] = []

    def args() -> tuple[Any, ...]:
        arg = x().requires_grad_()
        for hook in hooks:
            arg.register_hook(hook)
        return (arg,)

    def run(arg: torch.Tensor) -> Any:
        (arg * 2).sum().backward()
        return arg.grad

    return Mutation(run, args, lambda stack: hooks.append(lambda grad: grad * 3))


@mutation
def submodule_replaced() -> Mutation:
    return on_block(lambda m: setattr(m, "act", nn.Tanh()))


@mutation
def submodule_replaced_by_one_of_its_class() -> Mutation:
    return on_block(lambda m: setattr(m, "fc", nn.Linear(2, 2, bias=False)))


@mutation
def submodule_replaced_by_a_function() -> Mutation:
    def change(m: Any) -> None:
        del m.act
        m.act = torch.tanh

    return on_block(change)


@mutation
def submodule_shadowed_by_an_instance_attribute() -> Mutation:
    return on_block(lambda m: m.__dict__.__setitem__("act", torch.tanh))


@mutation
def submodule_deleted() -> Mutation:
    return on_block(lambda m: delattr(m, "fc"))


@mutation
def modules_dict_replaced() -> Mutation:
    return on_block(lambda m: m.__dict__.__setitem__("_modules", {"fc": m.fc, "act": nn.Tanh()}))


@mutation
def instance_dict_replaced() -> Mutation:
    return on_block(lambda m: setattr(m, "__dict__", {**m.__dict__, "scale": 5.0}))


@mutation
def attribute_set() -> Mutation:
    return on_block(lambda m: setattr(m, "scale", 3.0))


@mutation
def attribute_deleted() -> Mutation:
    return on_block(lambda m: delattr(m, "scale"))


@mutation
def attribute_becomes_a_tensor() -> Mutation:
    return on_block(lambda m: setattr(m, "scale", torch.tensor([4.0, 3.0])))


@mutation
def forward_shadowed_on_the_instance() -> Mutation:
    return on_block(lambda m: m.__dict__.__setitem__("forward", lambda x: x + 1))


@mutation
def child_forward_shadowed_on_the_instance() -> Mutation:
    return on_block(lambda m: m.fc.__dict__.__setitem__("forward", lambda x: x + 1))


@mutation
def forward_patched_on_the_class() -> Mutation:
    return Mutation(Block(), one, setting(Block, "forward", lambda self, x: x + 1))


@mutation
def child_forward_patched_on_its_class() -> Mutation:
    return Mutation(Block(), one, setting(nn.ReLU, "forward", lambda self, x: x + 1))


@mutation
def forward_patched_on_the_base_class() -> Mutation:
    return Mutation(Doubling(), one, setting(Block, "forward", lambda self, x: x + 1))


@mutation
def call_patched_on_the_base_class() -> Mutation:
    return Mutation(Block(), one, setting(nn.Module, "_call_impl", lambda self, *args: args[0] + 7))


@mutation
def class_reassigned() -> Mutation:
    return on_block(lambda m: setattr(m, "__class__", Doubling))


@mutation
def child_class_reassigned() -> Mutation:
    class Shifting(nn.ReLU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    return on_block(lambda m: setattr(m.act, "__class__", Shifting))


@mutation
def parameter_replaced() -> Mutation:
    return on_block(lambda m: setattr(m.fc, "weight", nn.Parameter(torch.ones(2, 2))))


@mutation
def parameter_of_another_shape() -> Mutation:
    def change(m: Any) -> None:
        m.fc.weight = nn.Parameter(torch.ones(1, 2))
        m.fc.bias = nn.Parameter(torch.ones(1))

    return on_block(change)


@mutation
def parameter_data_replaced() -> Mutation:
    def change(m: Any) -> None:
        m.fc.weight.data = torch.ones(2, 2)

    return on_block(change)


@mutation
def parameter_data_of_another_shape() -> Mutation:
    def change(m: Any) -> None:
        m.fc.weight.data = torch.ones(1, 2)
        m.fc.bias.data = torch.ones(1)

    return on_block(change)


@mutation
def parameter_data_of_another_dtype() -> Mutation:
    return on_block(lambda m: m.double(), make=lambda: WithCast())


class WithCast(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.to(self.fc.weight.dtype))


@mutation
def parameter_written_in_place() -> Mutation:
    def change(m: Any) -> None:
        with torch.no_grad():
            m.fc.weight.fill_(2.0)

    return on_block(change)


@mutation
def parameter_frozen() -> Mutation:
    def change(m: Any) -> None:
        for parameter in m.parameters():
            parameter.requires_grad_(False)

    return on_block(change)


@mutation
def bias_set_to_none() -> Mutation:
    return on_block(lambda m: setattr(m.fc, "bias", None))


@mutation
def buffer_replaced() -> Mutation:
    return on_block(lambda m: setattr(m, "offset", torch.full((2,), 5.0)))


@mutation
def buffer_becomes_a_plain_attribute() -> Mutation:
    def change(m: Any) -> None:
        del m.offset
        m.offset = 4.0

    return on_block(change)


@mutation
def parameters_tied() -> Mutation:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = linear(), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.a(x) + self.b(x), self.a.weight is self.b.weight

    def change(m: Any) -> None:
        m.b.weight, m.b.bias = m.a.weight, m.a.bias

    torch.manual_seed(1)
    return on_block(change, make=Two)


@mutation
def parameters_untied() -> Mutation:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = linear(), linear()
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> Any:
            return self.a(x) + self.b(x)

    return on_block(lambda m: setattr(m.b, "weight", nn.Parameter(torch.ones(2, 2))), make=Two)


class Dropping(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2 if self.training else super().forward(x)


@mutation
def eval_mode() -> Mutation:
    return on_block(lambda m: m.eval(), make=Dropping)


@mutation
def train_mode_of_a_child() -> Mutation:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2).eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x)

    return on_block(lambda m: m.norm.train(), make=Norm)


class Repeated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Softmax(-1), nn.Tanh()])
        self.named = nn.ModuleDict({"a": nn.Sigmoid()})
        self.chain = nn.Sequential(nn.Identity())
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(2))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        for layer in self.named.values():
            x = layer(x)
        for scale in self.scales:
            x = x * scale
        return self.chain(x)


@mutation
def module_list_appended() -> Mutation:
    return on_block(lambda m: m.layers.append(nn.Tanh()), make=Repeated)


@mutation
def module_list_item_replaced() -> Mutation:
    return on_block(lambda m: m.layers.__setitem__(0, nn.Tanh()), make=Repeated)


@mutation
def module_dict_item_added() -> Mutation:
    return on_block(lambda m: m.named.update({"b": nn.Tanh()}), make=Repeated)


@mutation
def sequential_appended() -> Mutation:
    return on_block(lambda m: m.chain.append(nn.Tanh()), make=Repeated)


@mutation
def parameter_list_appended() -> Mutation:
    return on_block(lambda m: m.scales.append(nn.Parameter(torch.full((2,), 3.0))), make=Repeated)


@mutation
def modules_change_places() -> Mutation:
    def change(m: Any) -> None:
        first = m.layers._modules.pop("0")
        m.layers._modules["0"] = first

    return on_block(change, make=Repeated)


@mutation
def attribute_nobody_reads() -> Mutation:
    return on_block(lambda m: setattr(m, "step", 1), seen=False, free=True)


@mutation
def train_and_eval_where_nobody_asks() -> Mutation:
    return on_block(lambda m: m.eval().train(), seen=False, free=True)


@mutation
def parametrization_added() -> Mutation:
    class Double(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * 2

    return on_block(lambda m: nn.utils.parametrize.register_parametrization(m.fc, "weight", Double()))


def calling(block: nn.Module) -> Any:
    """The module is called by what is compiled, and is not that itself."""
    return lambda x: block(x) - 1


@mutation
def call_of_all_modules() -> Mutation:
    return Mutation(calling(Block()), one, setting(nn.Module, "__call__", lambda self, *args: args[0] + 7))


@mutation
def call_impl_of_a_child() -> Mutation:
    block = Block()
    return Mutation(calling(block), one, setting(block.fc, "_call_impl", lambda x: x + 7))


@mutation
def call_impl_code() -> Mutation:
    def other(self: Any, *args: Any, **kwargs: Any) -> Any:
        return args[0] + 7

    return Mutation(calling(Block()), one, setting_code(nn.Module._call_impl, other))


@mutation
def compiled_call_of_a_child() -> Mutation:
    block = Block()
    return Mutation(calling(block), one, setting(block.fc, "_compiled_call_impl", lambda x: x + 7))


@mutation
def compiled_call_of_a_class() -> Mutation:
    class Special(nn.Linear):
        pass

    block = Block()
    block.fc = Special(2, 2)
    return Mutation(calling(block), one, setting(Special, "_compiled_call_impl", staticmethod(lambda x: x + 7)))
