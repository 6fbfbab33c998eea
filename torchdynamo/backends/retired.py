"""Names of former backends, with what to use instead."""

from __future__ import annotations

_FUSER = "nvFuser left PyTorch. Use 'inductor', which trains too"
_SCRIPT = "use 'ts' or 'ofi' for TorchScript, or 'inductor'"
_EXPORT = "it belongs to {} now: export the model and compile it there, or use 'inductor'"

RETIRED: dict[str, str] = {
    "nvfuser": _FUSER,
    "aot_nvfuser": _FUSER,
    "aot_ts_nvfuser": _FUSER,
    "prims_nvfuser": _FUSER,
    "nvprims_nvfuser": _FUSER,
    "nvprims_aten": _FUSER,
    "ts_nvfuser": _FUSER,
    "ts_nvfuser_ofi": _FUSER,
    "fusion_group": _FUSER,
    "aot_autograd": "it was a way to make backends: call torchdynamo.backends.aot_autograd(fw_compiler, ...)",
    "aot_nop": "use 'aot_eager'",
    "aot_print": "use torchdynamo.backends.aot_autograd with a compiler that prints its graph",
    "aot_ts": "use 'aot_eager' or 'inductor'",
    "aot_mem_efficient_fusion": "use 'inductor', which chooses what to recompute by the same min-cut",
    "aot_inductor_debug": "use 'aot_eager_decomp_partition'",
    "aot_cudagraphs": "use 'cudagraphs', or 'inductor' with mode='reduce-overhead'",
    "cudagraphs_ts": "use 'cudagraphs', or 'inductor' with mode='reduce-overhead'",
    "cudagraphs_ts_ofi": "use 'cudagraphs', or 'inductor' with mode='reduce-overhead'",
    "nnc": _SCRIPT,
    "nnc_ofi": _SCRIPT,
    "static_runtime": _SCRIPT,
    "ipex": "Intel's extension is part of PyTorch now. Use 'inductor'",
    "ipex_fp32": "Intel's extension is part of PyTorch now. Use 'inductor'",
    "onnx2tf": _EXPORT.format("TensorFlow"),
    "onnx2tensorrt": _EXPORT.format("Torch-TensorRT"),
    "fx2trt": _EXPORT.format("Torch-TensorRT"),
    "torch2trt": _EXPORT.format("Torch-TensorRT"),
    "taso": "use 'inductor'",
    "ansor": _EXPORT.format("Apache TVM"),
    "tvm_meta_schedule": _EXPORT.format("Apache TVM"),
}
