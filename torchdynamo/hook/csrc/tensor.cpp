// Packed tensor metadata, and what tensors are asked in C++. With aliasing.cpp and global_state.cpp, all that sees torch's headers.
#include "tensor_impl.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/Size.h>

#include <algorithm>
#include <cstring>
#include <vector>

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

extern "C" void td_tensor_row(TdTensorRow *row, const TdTensorMeta *meta, PyObject *tensor)
{
    *row = {meta, tensor};
    if (!td_is_tensor(tensor))
        return;
    const TensorImpl *impl = impl_of(tensor);
    row->impl = impl;
    if (const auto *autograd = static_cast<const torch::autograd::AutogradMeta *>(impl->autograd_meta())) {
        row->grad_fn = &autograd->grad_fn_;
        row->requires_grad = &autograd->requires_grad_;
    }
    if (impl->has_storage())
        row->storage = impl->unsafe_storage().unsafeGetStorageImpl();
}

extern "C" int td_tensor_meta_says_all(const TdTensorMeta *meta, PyObject *tensor)
{
    return td_is_tensor(tensor) && is_plain(impl_of(tensor)) && meta->ndim >= 0 && meta->check_strides
        && std::find(meta->dims.begin(), meta->dims.end(), ANY) == meta->dims.end();
}

// All lines of memory that are looked at are asked for some rows ahead.
static inline void look_ahead(const TdTensorRow *rows, bool placed)
{
    const char *impl = (const char *)rows[4].impl;
    __builtin_prefetch(rows[8].obj);
    __builtin_prefetch(impl);
    __builtin_prefetch(impl + 64);
    __builtin_prefetch(impl + 128);
    __builtin_prefetch(rows[4].grad_fn);
    __builtin_prefetch(rows[4].requires_grad);
    if (placed)
        __builtin_prefetch(rows[4].storage);
}

template <bool placed> static int match_all(const TdTensorRow *rows, int count, const void **places, int *moved)
{
    for (int i = 0; i < count; i++) {
        look_ahead(rows + i, placed);
        if (C10_UNLIKELY(!matches(rows[i].meta, rows[i].obj)))
            return i;
        if (!placed)
            continue;
        const void *place = address_of(impl_of(rows[i].obj));
        if (C10_UNLIKELY(place != places[i])) {
            places[i] = place;
            *moved = 1;
        }
    }
    return -1;
}

extern "C" int td_tensors_match(const TdTensorRow *rows, int count, const void **places, int *moved)
{
    return places != nullptr ? match_all<true>(rows, count, places, moved) : match_all<false>(rows, count, places, moved);
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

// ---- The module's part --------------------------------------------------------------------------------------------

static PyMethodDef tensor_functions[] = {
    {"tensor_meta", tensor_meta, METH_O,
     "tensor_meta(tensor) -> (class, dispatch keys, dtype, device, layout, requires_grad, sizes, strides)"},
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
    return PyModule_AddFunctions(module, tensor_functions);
}
