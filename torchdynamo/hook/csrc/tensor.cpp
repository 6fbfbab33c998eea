// Packed tensor metadata and global state: the only file that includes torch's headers.
#include "tensor.h" // first: it says how Python.h is to be read

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <vector>

// ---- Metadata of one tensor ----------------------------------------------------------------------------------------

namespace {

constexpr int64_t ANY = -1;

struct Packed {
    uint64_t keys;
    int16_t dtype;
    int8_t device_type, device_index;
    int8_t layout;
    bool requires_grad, inference;
    bool operator==(const Packed &o) const
    {
        return keys == o.keys && dtype == o.dtype && device_type == o.device_type && device_index == o.device_index
               && layout == o.layout && requires_grad == o.requires_grad && inference == o.inference;
    }
};

Packed pack(const at::Tensor &t)
{
    const auto device = t.device();
    return Packed{t.key_set().raw_repr(),
                  static_cast<int16_t>(t.scalar_type()),
                  static_cast<int8_t>(device.type()),
                  static_cast<int8_t>(device.index()),
                  static_cast<int8_t>(t.layout()),
                  t.requires_grad(),
                  t.is_inference()};
}

bool is_exact_tensor(PyObject *obj) { return PyObject_TypeCheck(obj, reinterpret_cast<PyTypeObject *>(THPVariableClass)); }

bool read_numbers(PyObject *tuple, std::vector<int64_t> &into)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        into.push_back(item == Py_None ? ANY : PyLong_AsLongLong(item));
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

PyObject *numbers(at::IntArrayRef values)
{
    PyObject *tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
    for (size_t i = 0; tuple != nullptr && i < values.size(); i++)
        PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
    return tuple;
}

} // namespace

struct TdTensorMeta {
    PyTypeObject *cls; // owned
    Packed packed;
    bool strided;
    std::vector<int64_t> sizes, strides; // ANY where any will do
};

namespace {

// The tuple that describes a tensor: class, dtype, device, layout, flags, dispatch keys, sizes, strides (None: none).
PyObject *tensor_meta(PyObject *, PyObject *obj)
{
    if (!is_exact_tensor(obj))
        return PyErr_Format(PyExc_TypeError, "not a tensor: %R", obj);
    const at::Tensor &t = THPVariable_Unpack(obj);
    const Packed p = pack(t);
    const bool strided = t.layout() == c10::kStrided;
    PyObject *sizes = numbers(t.sizes());
    PyObject *strides = strided ? numbers(t.strides()) : Py_NewRef(Py_None);
    return Py_BuildValue("(OhhhhOOKNN)", Py_TYPE(obj), p.dtype, p.device_type, p.device_index, p.layout,
                         p.requires_grad ? Py_True : Py_False, p.inference ? Py_True : Py_False,
                         static_cast<unsigned long long>(p.keys), sizes, strides);
}

bool same_numbers(const std::vector<int64_t> &wanted, at::IntArrayRef actual)
{
    for (size_t i = 0; i < wanted.size(); i++)
        if (wanted[i] != actual[i] && wanted[i] != ANY)
            return false;
    return true;
}

} // namespace

extern "C" TdTensorMeta *td_tensor_meta_new(PyObject *spec)
{
    PyObject *cls, *sizes, *strides;
    Packed p{};
    short dtype, device_type, device_index, layout;
    int requires_grad, inference;
    unsigned long long keys;
    if (!PyTuple_Check(spec)
        || !PyArg_ParseTuple(spec, "O!hhhhppKO!O", &PyType_Type, &cls, &dtype, &device_type, &device_index, &layout,
                             &requires_grad, &inference, &keys, &PyTuple_Type, &sizes, &strides))
        return nullptr;
    p = Packed{keys, dtype, static_cast<int8_t>(device_type), static_cast<int8_t>(device_index),
               static_cast<int8_t>(layout), requires_grad != 0, inference != 0};
    auto *meta = new TdTensorMeta{nullptr, p, PyTuple_Check(strides) != 0, {}, {}};
    if (!read_numbers(sizes, meta->sizes) || (meta->strided && !read_numbers(strides, meta->strides))) {
        delete meta;
        return nullptr;
    }
    meta->cls = reinterpret_cast<PyTypeObject *>(Py_NewRef(cls));
    return meta;
}

extern "C" void td_tensor_meta_free(TdTensorMeta *meta)
{
    if (meta != nullptr)
        Py_XDECREF(meta->cls);
    delete meta;
}

extern "C" int td_tensor_matches(const TdTensorMeta *meta, PyObject *obj)
{
    if (Py_TYPE(obj) != meta->cls)
        return 0;
    const at::Tensor &t = THPVariable_Unpack(obj);
    if (!t.defined() || !(pack(t) == meta->packed) || static_cast<size_t>(t.dim()) != meta->sizes.size())
        return 0;
    if (!same_numbers(meta->sizes, t.sizes()))
        return 0;
    return !meta->strided || same_numbers(meta->strides, t.strides());
}

extern "C" int td_is_tensor(PyObject *obj) { return is_exact_tensor(obj); }

extern "C" PyObject *td_tensor_attr(PyObject *tensor, PyObject *name)
{
    const at::Tensor &t = THPVariable_Unpack(tensor);
    if (PyUnicode_CompareWithASCIIString(name, "grad") != 0)
        return nullptr;
    const at::Tensor &grad = t.unsafeGetTensorImpl()->grad(); // the public reading warns about tensors that are no leaves
    return grad.defined() ? THPVariable_Wrap(grad) : Py_NewRef(Py_None);
}

// ---- Overlap ---------------------------------------------------------------------------------------------------------

namespace {

struct Span {
    const char *begin, *end;
};

Span span_of(const at::Tensor &t)
{
    const char *begin = static_cast<const char *>(t.const_data_ptr());
    if (t.numel() == 0)
        return {begin, begin};
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); d++)
        last += (t.size(d) - 1) * t.stride(d);
    return {begin, begin + (last + 1) * static_cast<int64_t>(t.element_size())};
}

} // namespace

extern "C" int td_tensors_apart(PyObject *const *tensors, Py_ssize_t count)
{
    // The first against each of the others: the caller says which one is written to.
    for (Py_ssize_t i = 0; i < count; i++)
        if (!is_exact_tensor(tensors[i]))
            return 0;
    if (count == 0)
        return 1;
    const at::Tensor &first = THPVariable_Unpack(tensors[0]);
    if (first.layout() != c10::kStrided || !first.has_storage())
        return 0;
    const Span mine = span_of(first);
    for (Py_ssize_t i = 1; i < count; i++) {
        const at::Tensor &other = THPVariable_Unpack(tensors[i]);
        if (other.layout() != c10::kStrided || !other.has_storage())
            return 0;
        const Span theirs = span_of(other);
        if (mine.begin < theirs.end && theirs.begin < mine.end)
            return 0;
    }
    return 1;
}

extern "C" int td_is_device(PyObject *obj) { return THPDevice_Check(obj); }

// ---- Global state --------------------------------------------------------------------------------------------------

namespace {

struct Snapshot {
    uint64_t included, excluded; // of the thread's dispatch keys: inference mode, functorch, tracing, ... show there
    int32_t function_modes, dispatch_modes;
    int8_t function_state, grad, inference, anomaly, saved_hooks, default_dtype;
    int8_t autocast[2], autocast_dtype[2], autocast_cache;
    int8_t deterministic, warn_only, cudnn, benchmark, sdp, tf32;
};

int8_t ask(bool (*question)())
{
    try {
        return static_cast<int8_t>(question());
    } catch (const std::exception &) { // torch refuses when its old and new settings disagree
        return 2;
    }
}

Snapshot snapshot()
{
    Snapshot s;
    std::memset(&s, 0, sizeof(s));
    const auto local = c10::impl::tls_local_dispatch_key_set();
    s.included = local.included_.raw_repr();
    s.excluded = local.excluded_.raw_repr();
    s.function_modes = static_cast<int32_t>(at::impl::PythonTorchFunctionTLS::stack_len());
    s.dispatch_modes = static_cast<int32_t>(c10::impl::TorchDispatchModeTLS::stack_len());
    s.function_state = static_cast<int8_t>(at::impl::PythonTorchFunctionTLS::get_disabled_state());
    s.grad = c10::GradMode::is_enabled();
    s.inference = c10::InferenceMode::is_enabled();
    s.anomaly = torch::autograd::AnomalyMode::is_enabled();
    s.saved_hooks = at::SavedTensorDefaultHooks::get_hooks().has_value();
    s.default_dtype = static_cast<int8_t>(c10::get_default_dtype_as_scalartype());
    const c10::DeviceType devices[] = {c10::kCPU, c10::kCUDA};
    for (int i = 0; i < 2; i++) {
        s.autocast[i] = at::autocast::is_autocast_enabled(devices[i]);
        s.autocast_dtype[i] = static_cast<int8_t>(at::autocast::get_autocast_dtype(devices[i]));
    }
    s.autocast_cache = at::autocast::is_autocast_cache_enabled();
    const auto &context = at::globalContext();
    s.deterministic = context.deterministicAlgorithms();
    s.warn_only = context.deterministicAlgorithmsWarnOnly();
    s.cudnn = context.userEnabledCuDNN();
    s.benchmark = context.benchmarkCuDNN();
    s.sdp = static_cast<int8_t>(context.userEnabledFlashSDP() | context.userEnabledMemEfficientSDP() << 1
                                | context.userEnabledMathSDP() << 2 | context.userEnabledCuDNNSDP() << 3);
    s.tf32 = ask([]() { return at::globalContext().allowTF32CuBLAS(); });
    return s;
}

PyObject *global_state(PyObject *, PyObject *)
{
    const Snapshot now = snapshot();
    return Py_BuildValue("(y#())", reinterpret_cast<const char *>(&now), static_cast<Py_ssize_t>(sizeof(now)));
}

} // namespace

struct TdState {
    Snapshot wanted;
};

extern "C" TdState *td_state_new(PyObject *spec)
{
    const char *bytes;
    Py_ssize_t size;
    PyObject *modes;
    if (!PyTuple_Check(spec) || !PyArg_ParseTuple(spec, "y#O", &bytes, &size, &modes))
        return nullptr;
    if (size != static_cast<Py_ssize_t>(sizeof(Snapshot))) {
        PyErr_SetString(PyExc_ValueError, "a snapshot of another build");
        return nullptr;
    }
    auto *state = new TdState;
    std::memcpy(&state->wanted, bytes, sizeof(Snapshot));
    return state;
}

extern "C" void td_state_free(TdState *state) { delete state; }

extern "C" int td_state_holds(const TdState *state)
{
    const Snapshot now = snapshot();
    return std::memcmp(&now, &state->wanted, sizeof(Snapshot)) == 0;
}

static PyMethodDef functions[] = {
    {"tensor_meta", tensor_meta, METH_O, "tensor_meta(t) -> the tuple TENSOR_MATCH compares."},
    {"global_state", global_state, METH_NOARGS, "global_state() -> what GLOBAL_STATE compares."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_tensor_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
