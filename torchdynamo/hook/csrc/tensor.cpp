// Packed tensor metadata and global state: the only file that includes torch's headers.
#include "tensor.h" // first: it says how Python.h is to be read

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <vector>

using c10::DispatchKey;
using c10::TensorImpl;

// ---- Tensors ------------------------------------------------------------------------------------------------------

struct TdTensorMeta {
    int owners = 1;
    PyTypeObject *cls; // owned
    uint64_t keys;     // conjugate and negative bits, inference, sparsity and Python dispatch are all in here
    caffe2::TypeMeta dtype;
    c10::Device device{c10::kCPU};
    c10::Layout layout{c10::kStrided};
    bool requires_grad, check_device, check_layout, check_strides;
    int64_t ndim;              // -1: sizes are not compared
    std::vector<int64_t> dims; // sizes, then strides; ANY matches all
};

static const int64_t ANY = -1; // no size is negative, and no stride torch allows

static PyObject *base_class() { return THPVariableClass; }

extern "C" int td_is_tensor(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj), *base = (PyTypeObject *)base_class();
    return base != nullptr && (type == base || type == (PyTypeObject *)ParameterClass || PyType_IsSubtype(type, base));
}

extern "C" int td_is_device(PyObject *obj) { return THPDevice_Check(obj); }

extern "C" int td_is_size(PyObject *obj) { return THPSize_Check(obj); }

static const TensorImpl *impl_of(PyObject *obj) { return THPVariable_Unpack(obj).unsafeGetTensorImpl(); }

// A subclass with __torch_dispatch__ may answer for its device, layout and sizes in Python: those are not asked.
static bool answers_in_python(const TensorImpl *impl) { return impl->key_set().has(DispatchKey::Python); }

static bool has_plain_sizes(const TensorImpl *impl)
{
    return !impl->has_symbolic_sizes_strides() && !impl->key_set().has(DispatchKey::NestedTensor);
}

static bool requires_grad(const TensorImpl *impl)
{
    const auto *meta = static_cast<const torch::autograd::AutogradMeta *>(impl->autograd_meta());
    // What its virtual requires_grad() says, which only views need: those ask their base, too.
    return meta != nullptr && (meta->requires_grad_ || meta->grad_fn_ || (meta->is_view_ && meta->requires_grad()));
}

static int read_dims(PyObject *tuple, std::vector<int64_t> &dims)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "sizes and strides must be tuples");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        dims.push_back(item == Py_None ? ANY : PyLong_AsLongLong(item));
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

extern "C" void td_tensor_meta_free(TdTensorMeta *meta)
{
    if (meta == nullptr || --meta->owners > 0)
        return;
    Py_XDECREF(meta->cls);
    delete meta;
}

extern "C" TdTensorMeta *td_tensor_meta_share(TdTensorMeta *meta)
{
    meta->owners++;
    return meta;
}

extern "C" TdTensorMeta *td_tensor_meta_new(PyObject *spec)
{
    PyObject *cls, *dtype, *device, *layout, *sizes, *strides;
    unsigned long long keys;
    int grad;
    if (!TD_PARSE(spec, "O!KO!O!O!pOO", &PyType_Type, &cls, &keys, &THPDtypeType, &dtype, &THPDeviceType, &device,
                          &THPLayoutType, &layout, &grad, &sizes, &strides))
        return nullptr;
    TdTensorMeta *meta = new TdTensorMeta();
    meta->cls = (PyTypeObject *)Py_NewRef(cls);
    meta->keys = keys;
    meta->dtype = c10::scalarTypeToTypeMeta(((THPDtype *)dtype)->scalar_type);
    meta->device = ((THPDevice *)device)->device;
    meta->layout = ((THPLayout *)layout)->layout;
    meta->requires_grad = grad;
    bool python = c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys).has(DispatchKey::Python);
    meta->check_device = !python;
    meta->check_layout = !python && meta->layout != c10::kStrided;
    meta->check_strides = strides != Py_None;
    meta->ndim = sizes == Py_None ? -1 : PyTuple_Check(sizes) ? PyTuple_GET_SIZE(sizes) : 0;
    if ((sizes != Py_None && read_dims(sizes, meta->dims) < 0)
        || (strides != Py_None && read_dims(strides, meta->dims) < 0)) {
        td_tensor_meta_free(meta);
        return nullptr;
    }
    if (meta->check_strides && (int64_t)meta->dims.size() != 2 * meta->ndim) {
        PyErr_SetString(PyExc_ValueError, "as many strides as sizes");
        td_tensor_meta_free(meta);
        return nullptr;
    }
    return meta;
}

static inline bool same_dims(const int64_t *expected, const int64_t *actual, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (expected[i] != actual[i] && expected[i] != ANY)
            return false;
    return true;
}

static inline bool matches(const TdTensorMeta *meta, PyObject *obj)
{
    if (Py_TYPE(obj) != meta->cls)
        return 0;
    const TensorImpl *impl = impl_of(obj);
    if (impl->key_set().raw_repr() != meta->keys || impl->dtype() != meta->dtype
        || requires_grad(impl) != meta->requires_grad)
        return 0;
    if (meta->check_device && impl->device() != meta->device)
        return 0;
    if (C10_UNLIKELY(meta->check_layout && impl->layout() != meta->layout))
        return 0;
    if (meta->ndim < 0)
        return 1;
    if (C10_UNLIKELY(impl->has_symbolic_sizes_strides()))
        return 0;
    c10::IntArrayRef sizes = impl->sizes_default();
    if ((int64_t)sizes.size() != meta->ndim || !same_dims(meta->dims.data(), sizes.data(), meta->ndim))
        return 0;
    return !meta->check_strides || same_dims(meta->dims.data() + meta->ndim, impl->strides_default().data(), meta->ndim);
}

static uint64_t look_from(uint64_t keys, caffe2::TypeMeta dtype, bool requires_grad, c10::IntArrayRef sizes)
{
    uint64_t look = keys ^ (uint64_t)c10::typeMetaToScalarType(dtype) << 48 ^ (uint64_t)requires_grad << 56;
    for (int64_t size : sizes)
        look = (look ^ (uint64_t)size) * 0x9E3779B97F4A7C15ull;
    return look;
}

extern "C" uint64_t td_tensor_look(PyObject *tensor)
{
    const TensorImpl *impl = impl_of(tensor);
    c10::IntArrayRef sizes = has_plain_sizes(impl) ? impl->sizes_default() : c10::IntArrayRef();
    return look_from(impl->key_set().raw_repr(), impl->dtype(), requires_grad(impl), sizes);
}

extern "C" uint64_t td_tensor_meta_look(const TdTensorMeta *meta)
{
    bool nested = c10::DispatchKeySet(c10::DispatchKeySet::RAW, meta->keys).has(DispatchKey::NestedTensor);
    if (meta->ndim < 0)
        return 0;
    c10::IntArrayRef sizes(meta->dims.data(), nested ? 0 : meta->ndim);
    for (int64_t size : sizes)
        if (size == ANY)
            return 0;
    return td_look_as(meta->cls, look_from(meta->keys, meta->dtype, meta->requires_grad, sizes));
}

extern "C" int td_tensor_matches(const TdTensorMeta *meta, PyObject *obj) { return matches(meta, obj); }

extern "C" const void *td_tensor_impl(PyObject *tensor) { return td_is_tensor(tensor) ? impl_of(tensor) : nullptr; }

extern "C" int td_tensors_match(const TdTensorRow *rows, int count)
{
    for (int i = 0; i < count; i++) {
        const char *impl = (const char *)rows[i + 4].impl;
        __builtin_prefetch(rows[i + 8].obj);
        __builtin_prefetch(impl);
        __builtin_prefetch(impl + 64);
        __builtin_prefetch(impl + 128);
        if (C10_UNLIKELY(!matches(rows[i].meta, rows[i].obj)))
            return i;
    }
    return -1;
}

static PyObject *tuple_of(c10::IntArrayRef dims)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)dims.size());
    for (size_t i = 0; tuple != nullptr && i < dims.size(); i++) {
        PyObject *number = PyLong_FromLongLong(dims[i]);
        if (number == nullptr) {
            Py_DECREF(tuple);
            return nullptr;
        }
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, number);
    }
    return tuple;
}

// tensor_meta(tensor) -> (class, dispatch keys, dtype, device, layout, requires_grad, sizes | None, strides | None)
static PyObject *tensor_meta(PyObject *, PyObject *obj)
{
    if (!td_is_tensor(obj))
        return PyErr_Format(PyExc_TypeError, "expected a tensor, got %.100s", Py_TYPE(obj)->tp_name);
    const TensorImpl *impl = impl_of(obj);
    try {
        bool python = answers_in_python(impl);
        c10::Device device = python ? c10::Device(impl->device_type()) : impl->device();
        c10::Layout layout = python ? c10::kStrided : impl->layout();
        bool sized = has_plain_sizes(impl), strided = sized && layout == c10::kStrided;
        PyObject *sizes = sized ? tuple_of(impl->sizes_default()) : Py_NewRef(Py_None);
        PyObject *strides = strided ? tuple_of(impl->strides_default()) : Py_NewRef(Py_None);
        return Py_BuildValue("OKONOONN", Py_TYPE(obj), (unsigned long long)impl->key_set().raw_repr(),
                             torch::getTHPDtype(c10::typeMetaToScalarType(impl->dtype())), THPDevice_New(device),
                             torch::getTHPLayout(layout), requires_grad(impl) ? Py_True : Py_False, sizes, strides);
    }
    catch (const std::exception &error) {
        return PyErr_Format(PyExc_RuntimeError, "%s", error.what());
    }
}

extern "C" int td_measure(PyObject *obj, int kind, Py_ssize_t dim, int64_t *answer)
{
    if (!td_is_tensor(obj))
        return 0;
    const TensorImpl *impl = impl_of(obj);
    if (!has_plain_sizes(impl) || (kind == 2 && impl->layout() != c10::kStrided))
        return 0;
    c10::IntArrayRef dims = kind == 1 ? impl->sizes_default() : impl->strides_default();
    if (dim < 0 || dim >= (Py_ssize_t)dims.size())
        return 0;
    *answer = dims[dim];
    return 1;
}

// ---- A tensor's attributes ----------------------------------------------------------------------------------------

static PyObject *grad_name, *base_name, *hooks_name, *grad_hooks_name, *leaf_name, *requires_name;
static PyObject *item_name, *float_name, *int_name, *bool_name, *list_name;

static PyObject *or_none(PyObject *obj) { return Py_NewRef(obj == nullptr ? Py_None : obj); }

// Exact tensors are asked by C code; subclasses, or under a mode, may answer in Python.
static PyObject *descriptor_of(PyObject *obj, PyObject *name, PyTypeObject *type)
{
    if (!THPVariable_CheckTypeExact(Py_TYPE(obj)) || at::impl::torch_function_mode_enabled())
        return nullptr;
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(obj), name);
    return descriptor != nullptr && Py_IS_TYPE(descriptor, type) ? descriptor : nullptr;
}

extern "C" PyObject *td_tensor_call(PyObject *obj, PyObject *name)
{
    PyObject *descriptor = descriptor_of(obj, name, &PyMethodDescr_Type);
    return descriptor == nullptr ? nullptr : PyObject_CallOneArg(descriptor, obj);
}

extern "C" PyObject *td_tensor_getter(PyObject *obj, PyObject *name)
{
    PyObject *descriptor = descriptor_of(obj, name, &PyGetSetDescr_Type);
    if (descriptor == nullptr)
        return nullptr;
    return Py_TYPE(descriptor)->tp_descr_get(descriptor, obj, (PyObject *)Py_TYPE(obj));
}

extern "C" PyObject *td_tensor_attr(PyObject *obj, PyObject *name, int *known)
{
    THPVariable *variable = (THPVariable *)obj;
    *known = 1;
    try {
        const at::Tensor &tensor = THPVariable_Unpack(variable);
        if (name == grad_name)
            return THPVariable_Wrap(tensor.unsafeGetTensorImpl()->grad());
        if (name == base_name)
            return tensor.is_view() ? THPVariable_Wrap(tensor._base()) : Py_NewRef(Py_None);
        if (name == hooks_name)
            return or_none(variable->backward_hooks);
        if (name == grad_hooks_name)
            return or_none(variable->post_accumulate_grad_hooks);
        if (name == leaf_name)
            return PyBool_FromLong(tensor.is_leaf());
        if (name == requires_name)
            return PyBool_FromLong(requires_grad(tensor.unsafeGetTensorImpl()));
        *known = 0;
    }
    catch (const std::exception &) {
        PyErr_Clear(); // an attribute that cannot be read is one that is not there
    }
    return nullptr;
}

// ---- What a tensor holds ------------------------------------------------------------------------------------------

// Where its elements begin, if it is nothing but memory of this machine; else NULL.
static const char *memory_of(const TensorImpl *impl)
{
    using c10::DispatchKeySet;
    static const uint64_t plain = DispatchKeySet({DispatchKey::CPU, DispatchKey::AutogradCPU, DispatchKey::AutocastCPU,
                                                  DispatchKey::ADInplaceOrView})
                                      .raw_repr();
    if ((impl->key_set().raw_repr() & ~plain) != 0 || !has_plain_sizes(impl) || impl->layout() != c10::kStrided
        || !impl->has_storage())
        return nullptr;
    const char *start = (const char *)impl->unsafe_storage().unsafeGetStorageImpl()->data();
    return start == nullptr ? nullptr : start + impl->storage_offset() * (int64_t)impl->itemsize();
}

template <typename T> static T value_at(const char *place) { return *reinterpret_cast<const T *>(place); }

// The number that lies there as Python has it; NULL with no error: a kind that is not read here.
static PyObject *number_at(const char *place, c10::ScalarType type)
{
    switch (type) {
    case c10::kDouble: return PyFloat_FromDouble(value_at<double>(place));
    case c10::kFloat: return PyFloat_FromDouble(value_at<float>(place));
    case c10::kHalf: return PyFloat_FromDouble(value_at<c10::Half>(place));
    case c10::kBFloat16: return PyFloat_FromDouble(value_at<c10::BFloat16>(place));
    case c10::kLong: return PyLong_FromLongLong(value_at<int64_t>(place));
    case c10::kInt: return PyLong_FromLong(value_at<int32_t>(place));
    case c10::kShort: return PyLong_FromLong(value_at<int16_t>(place));
    case c10::kChar: return PyLong_FromLong(value_at<int8_t>(place));
    case c10::kByte: return PyLong_FromLong(value_at<uint8_t>(place));
    case c10::kBool: return PyBool_FromLong(value_at<uint8_t>(place) != 0);
    default: return nullptr;
    }
}

static PyObject *list_at(const char *place, const TensorImpl *impl, int64_t dim)
{
    c10::IntArrayRef sizes = impl->sizes_default(), strides = impl->strides_default();
    if (dim == (int64_t)sizes.size())
        return number_at(place, c10::typeMetaToScalarType(impl->dtype()));
    PyObject *list = PyList_New((Py_ssize_t)sizes[dim]);
    for (int64_t i = 0; list != nullptr && i < sizes[dim]; i++) {
        PyObject *item = list_at(place + i * strides[dim] * (int64_t)impl->itemsize(), impl, dim + 1);
        if (item == nullptr) {
            Py_DECREF(list);
            return nullptr;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

// What `float`, `int` or `bool` makes of the one number of a tensor.
static PyObject *converted(PyObject *number, PyObject *name)
{
    PyObject *made = name == float_name  ? PyNumber_Float(number)
                     : name == int_name  ? PyNumber_Long(number)
                     : name == bool_name ? PyBool_FromLong(PyObject_IsTrue(number))
                                         : Py_NewRef(number);
    Py_DECREF(number);
    return made;
}

extern "C" PyObject *td_tensor_read(PyObject *obj, PyObject *name)
{
    const TensorImpl *impl = impl_of(obj);
    int one = name == item_name || name == float_name || name == int_name || name == bool_name;
    if ((!one && name != list_name) || !THPVariable_CheckTypeExact(Py_TYPE(obj)))
        return nullptr;
    const char *place = memory_of(impl);
    if (place == nullptr || (one && impl->numel() != 1))
        return nullptr;
    PyObject *made = one ? number_at(place, c10::typeMetaToScalarType(impl->dtype())) : list_at(place, impl, 0);
    if (one && made != nullptr)
        made = converted(made, name);
    if (made == nullptr)
        PyErr_Clear(); // a NaN is no int; who asks hears that from torch
    return made;
}

// ---- Aliasing -----------------------------------------------------------------------------------------------------

namespace {
struct Range {
    const void *space; // within which addresses compare: a storage where memory has no address, else the device
    uintptr_t low, high;
};
} // namespace

// What lends its memory out: a bytearray, an array of NumPy's. A class written in Python may do so by a method of its
// own, which is not asked.
static bool lends_in_c(PyTypeObject *type)
{
    const PyTypeObject *base = type;
    while ((base->tp_flags & Py_TPFLAGS_HEAPTYPE) && base->tp_base != nullptr)
        base = base->tp_base;
    return base->tp_as_buffer != nullptr && base->tp_as_buffer->bf_getbuffer == type->tp_as_buffer->bf_getbuffer;
}

static bool range_of_buffer(PyObject *obj, Range &range)
{
    Py_buffer view;
    if (!lends_in_c(Py_TYPE(obj)))
        return false;
    if (PyObject_GetBuffer(obj, &view, PyBUF_STRIDED_RO) < 0) {
        PyErr_Clear();
        return false;
    }
    range.space = (const void *)(uintptr_t)1; // as tensors of the CPU have it
    range.low = range.high = (uintptr_t)view.buf;
    if (view.len > 0) {
        range.high += view.itemsize;
        for (int i = 0; i < view.ndim; i++) {
            Py_ssize_t last = (view.shape[i] - 1) * view.strides[i];
            (last < 0 ? range.low : range.high) += (uintptr_t)last;
        }
    }
    PyBuffer_Release(&view);
    return true;
}

// False: its bytes cannot be told. An empty tensor has none.
static bool range_of(PyObject *obj, Range &range)
{
    if (!td_is_tensor(obj))
        return PyObject_CheckBuffer(obj) && range_of_buffer(obj, range);
    const TensorImpl *impl = impl_of(obj);
    if (answers_in_python(impl) || !has_plain_sizes(impl) || impl->layout() != c10::kStrided || !impl->has_storage())
        return false;
    c10::IntArrayRef sizes = impl->sizes_default(), strides = impl->strides_default();
    uintptr_t item = impl->itemsize(), last = 0;
    const c10::StorageImpl *storage = impl->unsafe_storage().unsafeGetStorageImpl();
    uintptr_t start = (uintptr_t)storage->data();
    range.space = start == 0 ? (const void *)storage : (const void *)(uintptr_t)(impl->device().index() + 2);
    range.low = start + (uintptr_t)impl->storage_offset() * item;
    for (size_t i = 0; i < sizes.size(); i++) {
        if (sizes[i] == 0) {
            range.high = range.low;
            return true;
        }
        last += (uintptr_t)(sizes[i] - 1) * (uintptr_t)strides[i];
    }
    range.high = range.low + (last + 1) * item;
    return true;
}

static bool before(const Range &a, const Range &b) { return a.space != b.space ? a.space < b.space : a.low < b.low; }

// In order of memory, a tensor overlaps one before it if it begins below the highest end so far. Those that are only
// read may overlap each other, so the ends of those that are written to count by themselves.
static bool apart_in_order(const Range *ranges, const int *marks, Py_ssize_t count)
{
    uintptr_t end = 0, written_end = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Range &range = ranges[i];
        if (i == 0 || range.space != ranges[i - 1].space)
            end = written_end = 0;
        if (range.low == range.high)
            continue;
        if (range.low < (marks[i] & 1 ? end : written_end))
            return false;
        end = std::max(end, range.high);
        if (marks[i] & 1)
            written_end = std::max(written_end, range.high);
    }
    return true;
}

extern "C" int td_tensors_apart(PyObject *const *values, int *marks, Py_ssize_t count)
{
    try {
        Range few[64];
        std::vector<Range> many(count > 64 ? count : 0);
        Range *ranges = count > 64 ? many.data() : few;
        for (Py_ssize_t i = 0; i < count; i++) {
            Range range;
            if (!range_of(values[marks[i] >> 1], range))
                return 0;
            // Inserted where it belongs: at the end, nearly always, as they come in the order they were in last time.
            Py_ssize_t at = i;
            int mark = marks[i];
            for (; at > 0 && before(range, ranges[at - 1]); at--) {
                ranges[at] = ranges[at - 1];
                marks[at] = marks[at - 1];
            }
            ranges[at] = range;
            marks[at] = mark;
        }
        return apart_in_order(ranges, marks, count);
    }
    catch (const std::exception &) {
        return 0; // memory that cannot be asked for cannot be told apart
    }
}

static PyObject *tensors_apart(PyObject *, PyObject *args)
{
    PyObject *written, *read;
    if (!PyArg_ParseTuple(args, "O!O!:tensors_apart", &PyTuple_Type, &written, &PyTuple_Type, &read))
        return nullptr;
    std::vector<PyObject *> values;
    std::vector<int> marks;
    for (PyObject *tuple : {written, read})
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
            marks.push_back(2 * (int)values.size() + (tuple == written));
            values.push_back(PyTuple_GET_ITEM(tuple, i));
        }
    return PyBool_FromLong(td_tensors_apart(values.data(), marks.data(), (Py_ssize_t)marks.size()));
}

// ---- Global state -------------------------------------------------------------------------------------------------

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

namespace {
struct Packed {
#define DECLARE(type, name, value) type name;
    STATE_FIELDS(DECLARE)
    CUDA_FIELDS(DECLARE)
#undef DECLARE
};

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

// ---- The module's part --------------------------------------------------------------------------------------------

static PyMethodDef functions[] = {
    {"tensor_meta", tensor_meta, METH_O,
     "tensor_meta(tensor) -> (class, dispatch keys, dtype, device, layout, requires_grad, sizes, strides)"},
    {"tensors_apart", tensors_apart, METH_VARARGS,
     "tensors_apart(written, read) -> bool: those written to share no byte of storage with each other or those read."},
    {"global_state", global_state, METH_NOARGS, "global_state() -> (bytes, modes) of this thread now."},
    {"global_state_fields", global_state_fields, METH_O, "global_state_fields(bytes) -> {name: value}"},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_tensor_init(PyObject *module)
{
    struct {
        PyObject **place;
        const char *text;
    } names[] = {{&grad_name, "grad"},
                 {&base_name, "_base"},
                 {&hooks_name, "_backward_hooks"},
                 {&grad_hooks_name, "_post_accumulate_grad_hooks"},
                 {&leaf_name, "is_leaf"},
                 {&requires_name, "requires_grad"},
                 {&item_name, "item"},
                 {&float_name, "__float__"},
                 {&int_name, "__int__"},
                 {&bool_name, "__bool__"},
                 {&list_name, "tolist"}};
    for (auto &name : names)
        if ((*name.place = PyUnicode_InternFromString(name.text)) == nullptr)
            return -1;
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
    return PyModule_AddFunctions(module, functions);
}
