"""The private names of torch that this package uses, by prefix, with the use of each.

A row covers all names that begin with it. Names are used as attributes and imports, so one that a version of torch
lacks raises where it is used. SOME_VERSIONS lists names that are asked for by `getattr`, or behind a version test in
`torch_compat.py`. `tests/graph/test_graph_torch_private.py` compares the table with the sources and with the installed
torch.
"""

from __future__ import annotations

PRIVATE: dict[str, str] = {
    # -- the state of the process and thread -------------------------------------------------------------------------
    "torch._C._DisableAutocast": "a backward runs without the autocast of its caller",
    "torch._C._DisableFuncTorch": "a tensor is looked at outside of the layers of torch.func",
    "torch._C._DisablePythonDispatcher": "a binding is tried on fake tensors without decomposing it first",
    "torch._C._InferenceMode": "inference mode, as a program enters it",
    "torch._C._are_functorch_transforms_active": "whether a layer of torch.func is open",
    "torch._C._functorch": "layers of torch.func: which are open, and whether a tensor is wrapped by one",
    "torch._C._get_default_device": "the device that `torch.Tensor(...)` makes tensors on",
    "torch._C._get_obj_in_tls": "the context variables of the thread that has called `backward()`",
    "torch._C._is_key_in_tls": "whether that thread has context variables",
    "torch._C._get_tracing_state": "TorchScript's tracer: what it traces is not captured",
    "torch._C._is_any_autocast_enabled": "autocast of any device",
    "torch._C._is_fwd_grad_enabled": "forward-mode differentiation, as a graph finds and leaves it",
    "torch._C._set_fwd_grad_enabled": "forward-mode differentiation, restored",
    "torch._C._set_grad_enabled": "grad mode, as an operation of a graph",
    "torch._C._len_torch_dispatch_stack": "whether a dispatch mode is on: it is to see each operator",
    "torch._C._len_torch_function_stack": "whether a function mode is on",
    "torch._C._push_on_torch_function_stack": "a mode that a frame leaves on is put back when its graph has run",
    "torch._C._set_throw_on_mutable_data_ptr": "kernels that would write to the memory of a fake tensor raise",
    "torch._C._enter_dual_level": "enters a level of forward-mode differentiation",
    "torch._C._exit_dual_level": "leaves a level of forward-mode differentiation",
    "torch.amp.autocast_mode._enter_autocast": "autocast as an operation of a graph",
    "torch.amp.autocast_mode._exit_autocast": "autocast as an operation of a graph",
    "torch.autograd.forward_ad._current_level": "the level of forward-mode differentiation that is open",
    "torch.autograd.grad_mode._enter_inference_mode": "inference mode as an operation of a graph",
    "torch.autograd.grad_mode._exit_inference_mode": "inference mode as an operation of a graph",
    "torch.overrides._get_current_function_mode_stack": "modes that see functions of torch first",
    "torch.utils._device.DeviceContext": "`with torch.device(...)`, which is a mode",
    "torch.utils._device._device_constructors": "the functions that this mode gives a device",
    "torch.cuda._is_compiled": "whether torch was built for CUDA: a fact of the build",
    # -- autograd -----------------------------------------------------------------------------------------------------
    "torch._C._FunctionBase": "`ctx` of an autograd.Function",
    "torch._C._autograd": "hooks on saved tensors, versions of tensors, whether a backward is to be kept",
    "torch.autograd.function._SingleLevelFunction": "whether an autograd.Function has a `setup_context` of its own",
    "torch.utils.checkpoint._StopRecomputationError": "a checkpoint that has computed enough",
    # -- operators ----------------------------------------------------------------------------------------------------
    "torch._C._nn": "bindings of operators, called without the Python layer around them",
    "torch._C._functionalization": "results that are views of inputs, made of the inputs by the captured steps",
    "torch._C._VariableFunctions": "functions of torch in C++, which kernels call by name",
    "torch._C._infer_size": "the shape that two shapes broadcast to",
    "torch._C._group_tensors_by_device_and_dtype": "optimizers group their tensors by it",
    "torch._C._SDPBackend": "kernels of attention, constants of a graph",
    "torch._VF": "functions that torch exports under another name",
    "torch._assert": "checks: facts about unknown numbers",
    "torch._check": "checks: facts about unknown numbers, all of their spellings",
    "torch._debug_has_internal_overlap": "whether elements of a tensor share memory",
    "torch._foreach_add_": "step counters of optimizers",
    "torch._foreach_copy_": "inputs of CUDA graphs are copied in at once",
    "torch._is_functional_tensor": "tensors of a tracer, which are left to it",
    "torch._ops": "operators and their overloads: is a callable one?",
    "torch._tensor_classes": "`torch.FloatTensor` and its kin",
    "torch._dispatch.python.enable_python_dispatcher": "decomposes operators in Python, which specializes fewer sizes",
    "torch._higher_order_ops": "cond, while_loop, scan, map, flex_attention, checkpoints in graphs",
    "torch._decomp.decomposition_table": "decompositions, for operators whose own rule specializes sizes",
    "torch._prims_common.suggest_memory_format": "the memory format that convolutions give their results",
    "torch._refs.tensor": "rules for tensors in Python",
    "torch.ops.mkldnn._is_mkldnn_acl_supported": "decides for what Inductor packs frozen weights",
    "torch.ops.mkldnn._linear_pointwise": "linear layers by oneDNN, with weights that are not packed",
    "torch.ops.aten._assert_async": "a check of a tensor in an exported graph",
    "torch.ops.aten._assert_scalar": "a check of an unknown number in a graph for a tracer",
    "torch.ops.aten._fft_c2c": "istft, step by step",
    "torch.ops.aten._fft_c2r": "istft, step by step",
    "torch.ops._quantized": "operators that code of Inductor calls",
    "torch.ops.inductor._alloc_from_pool": "memory that code of Inductor takes from a larger piece",
    "torch.ops.aten._unsafe_view": "the only view of a result",
    "torch._library.opaque_object": "classes whose objects are values, such as placements of DTensor",
    "torch.nested._internal.nested_tensor": "nested tensors made of values and offsets",
    "torch.nn._reduction": "reductions of losses by number",
    "torch.Tensor._make_subclass": "a tensor becomes one of a subclass",
    # -- modules and optimizers ---------------------------------------------------------------------------------------
    "torch.nn.Module._call_impl": "whether a module has torch's own call",
    "torch.nn.modules.module._global_forward_hooks_always_called": "whether hooks run if a forward raises",
    "torch.optim.optimizer._get_value": "reads step counters",
    "torch.library._impls": "kernels that are registered in Python: has the program replaced some of torch's?",
    # -- fake tensors and symbols -------------------------------------------------------------------------------------
    "torch._subclasses.fake_tensor": "fake tensors, and the errors that they raise",
    "torch._guards": "tracing contexts, which AOTAutograd and Inductor ask for",
    "torch.fx.experimental._config": "whether sizes 0 and 1 are like others (a row of patches.py)",
    "torch.fx.experimental.sym_node._optimized_add": "a row of patches.py",
    "torch.utils._sympy": "facts about symbols, printed and compared",
    "torch.fx.graph._PyTreeCodeGen": "code of graphs that are called as the program is",
    "torch.fx.graph._PyTreeInfo": "code of graphs that are called as the program is",
    "torch.fx.graph._BoxedCodeGen": "code of graphs that takes its inputs in a list and frees them",
    "torch.fx.graph_module._loader": "texts of graphs' code, freed with the graphs",
    "torch.utils._pytree": "containers of a graph's inputs and results, flattened as AOTAutograd does",
    "torch.utils._python_dispatch": "a mode that sees what operators a graph or a binding calls",
    # -- compilers ----------------------------------------------------------------------------------------------------
    "torch._functorch.aot_autograd": "AOTAutograd",
    "torch._functorch._aot_autograd.runtime_wrappers": "what AOTAutograd runs, noted; a row of patches.py",
    "torch._functorch._aot_autograd.graph_compile": "a row of patches.py",
    "torch._functorch.config": "its settings: the cache on disk, and a row of patches.py",
    "torch._functorch.fx_minifier": "cuts a graph on which a backend fails",
    "torch._functorch.partitioners": "how forward is split from backward",
    "torch._functorch.eager_transforms": "torch.func, captured through its own Python code",
    "torch._functorch.predispatch": "torch.func, captured through its own Python code",
    "torch._functorch.vmap": "torch.func, captured through its own Python code",
    "torch.autograd.forward_ad._maybe_load_decompositions": "torch.func, captured through its own Python code",
    "torch._inductor": "Inductor: its entry, settings, decompositions, passes, caches on disk",
    # -- seeing -------------------------------------------------------------------------------------------------------
    "torch._C._profiler": "ranges of the compiler in the trace of a profiler",
    # -- torch.compile, beside us -------------------------------------------------------------------------------------
    "torch._compile": "functions that torch has marked as not to be compiled",
}

# Name that only some versions or builds of torch have -> the behaviour without it.
SOME_VERSIONS: dict[str, str] = {
    "torch._C._cuda_getCurrentRawStream": "streams are asked for their number by an object, which takes longer",
    "torch._C._cuda_clearCublasWorkspaces": "a build without CUDA makes no recordings, which clear workspaces",
    "torch.fx.experimental.symbolic_shapes._ShapeEnvGuardError": "GuardOnDataDependentSymNode says the same",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.error_on_new_guards": "a rule decides by the size at hand",
}
