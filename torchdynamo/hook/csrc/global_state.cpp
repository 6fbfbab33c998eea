// The state of the process and thread that decides what operators do, packed: one compare tells whether it has changed.
#include "tensor.h" // first: it says how Python.h is to be read

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <cstring>

using c10::DispatchKey;

// Everything outside the frame's own objects that decides what an operator does: one row, one field.
#define STATE_FIELDS(X)                                                                                                \
    X(uint64_t, dispatch_keys_included, thread.keys->included_)                                                        \
    X(uint64_t, dispatch_keys_excluded, thread.keys->excluded_)                                                        \
    X(int64_t, functorch_level, functorch_level(*thread.keys))                                                         \
    X(int32_t, torch_function_modes, (int32_t)at::impl::PythonTorchFunctionTLS::stack_len())                           \
    X(int32_t, dispatch_modes, dispatch_modes(*thread.keys))                                                           \
    X(int32_t, saved_tensor_hooks, (int32_t)thread.hooks->stack.size())                                                \
    X(bool, saved_tensor_hooks_disabled, thread.hooks->disabled_error_message.has_value())                             \
    X(bool, saved_tensor_hooks_tracing, thread.hooks->is_tracing)                                                      \
    X(int8_t, torch_function_disabled, (int8_t)at::impl::PythonTorchFunctionTLS::get_disabled_state())                 \
    X(bool, grad_enabled, thread.autograd->get_grad_mode())                                                            \
    X(bool, forward_grad_enabled, thread.autograd->get_fw_grad_mode())                                                 \
    X(bool, inference_mode, thread.autograd->get_inference_mode())                                                     \
    X(bool, view_replay_enabled, thread.autograd->get_view_replay_enabled())                                           \
    X(bool, anomaly_mode, torch::autograd::AnomalyMode::is_enabled())                                                  \
    X(bool, anomaly_check_nan, torch::autograd::AnomalyMode::should_check_nan())                                       \
    X(c10::ScalarType, autocast_dtype_cpu, at::autocast::get_autocast_dtype(c10::kCPU))                                \
    X(c10::ScalarType, autocast_dtype_cuda, at::autocast::get_autocast_dtype(c10::kCUDA))                              \
    X(bool, autocast_cache_enabled, at::autocast::is_autocast_cache_enabled())                                         \
    X(c10::ScalarType, default_dtype, c10::get_default_dtype_as_scalartype())                                          \
    X(bool, deterministic_algorithms, context->deterministicAlgorithms())                                              \
    X(bool, deterministic_warn_only, context->deterministicAlgorithmsWarnOnly())                                       \
    X(bool, deterministic_fill, context->deterministicFillUninitializedMemory())                                       \
    X(bool, mkldnn_enabled, context->userEnabledMkldnn())                                                              \
    X(bool, sdp_flash, context->userEnabledFlashSDP())                                                                 \
    X(bool, sdp_math, context->userEnabledMathSDP())                                                                   \
    X(int8_t, matmul_precision_cpu, precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL))

// What nothing heeds where torch was built without CUDA.
#define CUDA_FIELDS(X)                                                                                                 \
    X(bool, sdp_mem_efficient, context->userEnabledMemEfficientSDP())                                                  \
    X(bool, sdp_cudnn, context->userEnabledCuDNNSDP())                                                                 \
    X(bool, cudnn_enabled, context->userEnabledCuDNN())                                                                \
    X(bool, cudnn_benchmark, context->benchmarkCuDNN())                                                                \
    X(bool, cudnn_deterministic, context->deterministicCuDNN())                                                        \
    X(int8_t, fp16_reduction_cublas, (int8_t)context->allowFP16ReductionCuBLAS())                                      \
    X(int8_t, bf16_reduction_cublas, (int8_t)context->allowBF16ReductionCuBLAS())                                      \
    X(int8_t, matmul_precision_cuda, precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL))                       \
    X(int8_t, conv_precision_cuda, precision(at::Float32Backend::CUDA, at::Float32Op::CONV))

struct Packed {
#define DECLARE(type, name, value) type name;
    STATE_FIELDS(DECLARE)
    CUDA_FIELDS(DECLARE)
#undef DECLARE
};

namespace {
// Where torch keeps a thread's state: places that stay while the thread lives.
struct Thread {
    PyThreadState *python;
    uint64_t id; // threads of Python are numbered, and no number comes twice
    const c10::impl::PODLocalDispatchKeySet *keys;
    const c10::AutogradState *autograd;
    const at::impl::SavedTensorDefaultHooksTLS *hooks;
};
} // namespace

static Thread thread;        // the one that asked last: finding the places again costs more than all the rest
static at::Context *context; // the process's settings
static bool has_cuda;

struct TdState {
    Packed packed;
    PyObject *modes; // owned tuple: for each torch function mode a device, or a weakref to it
};

extern "C" int td_is_tracing(void) { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer); }

static PyObject *current_level; // torch's own reading of functorch's stack, whose C++ headers are not installed

// How many of functorch's transforms are under way; almost always none, which the dispatch keys tell.
static int64_t functorch_level(const c10::impl::PODLocalDispatchKeySet &local)
{
    if (C10_LIKELY(!local.included().has(DispatchKey::FuncTorchDynamicLayerFrontMode)))
        return 0;
    PyObject *answer = PyObject_CallNoArgs(current_level);
    int64_t level = answer == nullptr ? -1 : PyLong_AsLongLong(answer);
    Py_XDECREF(answer);
    PyErr_Clear();
    return level;
}

static int32_t dispatch_modes(const c10::impl::PODLocalDispatchKeySet &local)
{
    return C10_LIKELY(!local.included().has(DispatchKey::Python)) ? 0 : (int32_t)c10::impl::TorchDispatchModeTLS::stack_len();
}

static int8_t precision(at::Float32Backend backend, at::Float32Op op)
{
    try {
        return (int8_t)context->float32Precision(backend, op);
    }
    catch (const std::exception &) { // a torch that does not know the pair
        return -1;
    }
}

static inline void find_thread()
{
    PyThreadState *python = PyThreadState_Get();
    uint64_t id = PyThreadState_GetID(python);
    if (C10_LIKELY(python == thread.python && id == thread.id))
        return;
    thread = {python, id, &c10::impl::raw_local_dispatch_key_set, &c10::AutogradState::get_tls_state(),
              &at::SavedTensorDefaultHooks::get_tls_state()};
}

static inline void read_state(Packed &packed)
{
    find_thread();
    std::memset(&packed, 0, sizeof packed); // the padding too: it is compared
#define READ(type, name, value) packed.name = value;
    STATE_FIELDS(READ)
    if (has_cuda) {
        CUDA_FIELDS(READ)
    }
#undef READ
}

static PyObject *function_mode(int64_t index)
{
    return at::impl::PythonTorchFunctionTLS::get_stack_at(index)->ptr(getPyInterpreter());
}

// The mode `torch.device(...)` and set_default_device() push: a new object every time, so its device is what counts.
static PyObject *device_of(PyObject *mode)
{
    if (std::strcmp(Py_TYPE(mode)->tp_name, "DeviceContext") != 0)
        return nullptr;
    PyObject **dict = _PyObject_GetDictPtr(mode);
    PyObject *device = dict == nullptr || *dict == nullptr ? nullptr : PyDict_GetItemString(*dict, "device");
    return device != nullptr && THPDevice_Check(device) ? device : nullptr;
}

static bool same_mode(PyObject *expected, PyObject *mode)
{
    if (!THPDevice_Check(expected))
        return PyWeakref_CheckRefExact(expected) && PyWeakref_GET_OBJECT(expected) == mode;
    PyObject *device = device_of(mode);
    return device != nullptr && ((THPDevice *)device)->device == ((THPDevice *)expected)->device;
}

extern "C" int td_state_holds(const TdState *state)
{
    Packed now;
    read_state(now);
    if (std::memcmp(&now, &state->packed, sizeof now) != 0)
        return 0;
    for (int32_t i = 0; i < now.torch_function_modes; i++)
        if (i >= PyTuple_GET_SIZE(state->modes) || !same_mode(PyTuple_GET_ITEM(state->modes, i), function_mode(i)))
            return 0;
    return 1;
}

extern "C" void td_state_free(TdState *state)
{
    if (state == nullptr)
        return;
    Py_XDECREF(state->modes);
    delete state;
}

extern "C" TdState *td_state_new(PyObject *spec)
{
    const char *bytes;
    Py_ssize_t length;
    PyObject *modes;
    if (!TD_PARSE(spec, "y#O!", &bytes, &length, &PyTuple_Type, &modes))
        return nullptr;
    if (length != (Py_ssize_t)sizeof(Packed)) {
        PyErr_SetString(PyExc_ValueError, "a global state of another version");
        return nullptr;
    }
    TdState *state = new TdState();
    std::memcpy(&state->packed, bytes, sizeof(Packed));
    state->modes = Py_NewRef(modes);
    return state;
}

// global_state() -> (bytes, modes): the state of this thread now.
static PyObject *global_state(PyObject *, PyObject *)
{
    Packed now;
    read_state(now);
    PyObject *modes = PyTuple_New(now.torch_function_modes);
    for (int32_t i = 0; modes != nullptr && i < now.torch_function_modes; i++) {
        PyObject *mode = function_mode(i), *device = device_of(mode);
        PyObject *entry = device != nullptr ? Py_NewRef(device) : PyWeakref_NewRef(mode, nullptr);
        if (entry == nullptr) {
            Py_DECREF(modes);
            return nullptr;
        }
        PyTuple_SET_ITEM(modes, i, entry);
    }
    return Py_BuildValue("y#N", (const char *)&now, (Py_ssize_t)sizeof now, modes);
}

static PyObject *told(bool value) { return PyBool_FromLong(value); }
static PyObject *told(uint64_t value) { return PyLong_FromUnsignedLongLong(value); }
static PyObject *told(int64_t value) { return PyLong_FromLongLong(value); }
static PyObject *told(int32_t value) { return PyLong_FromLong(value); }
static PyObject *told(int8_t value) { return PyLong_FromLong(value); }
static PyObject *told(c10::ScalarType value) { return Py_NewRef((PyObject *)torch::getTHPDtype(value)); }

// global_state_fields(bytes) -> {name: value}
static PyObject *global_state_fields(PyObject *, PyObject *obj)
{
    Packed packed;
    if (!PyBytes_Check(obj) || PyBytes_GET_SIZE(obj) != (Py_ssize_t)sizeof packed)
        return PyErr_Format(PyExc_ValueError, "not the bytes of a global state");
    std::memcpy(&packed, PyBytes_AS_STRING(obj), sizeof packed);
    PyObject *fields = PyDict_New();
#define PUT(type, name, value)                                                                                         \
    if (fields != nullptr) {                                                                                           \
        PyObject *number = told(packed.name);                                                                          \
        if (number == nullptr || PyDict_SetItemString(fields, #name, number) < 0)                                      \
            Py_CLEAR(fields);                                                                                          \
        Py_XDECREF(number);                                                                                            \
    }
    STATE_FIELDS(PUT)
    CUDA_FIELDS(PUT)
#undef PUT
    return fields;
}

static PyMethodDef state_functions[] = {
    {"global_state", global_state, METH_NOARGS, "global_state() -> (bytes, modes) of this thread now."},
    {"global_state_fields", global_state_fields, METH_O, "global_state_fields(bytes) -> {name: value}"},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_global_state_init(PyObject *module)
{
    PyObject *functorch = PyImport_ImportModule("torch._C._functorch");
    if (functorch == nullptr)
        return -1;
    current_level = PyObject_GetAttrString(functorch, "maybe_current_level");
    Py_DECREF(functorch);
    PyObject *torch_c = PyImport_ImportModule("torch._C"), *built = nullptr;
    if (torch_c != nullptr)
        built = PyObject_GetAttrString(torch_c, "_has_cuda");
    Py_XDECREF(torch_c);
    if (built == nullptr || current_level == nullptr)
        return -1;
    has_cuda = built == Py_True;
    Py_DECREF(built);
    context = &at::globalContext();
    return PyModule_AddFunctions(module, state_functions);
}
