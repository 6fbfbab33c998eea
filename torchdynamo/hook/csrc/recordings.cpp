// What recordings of CUDA graphs ask of tensors at each call: are inputs where they were, who has results, fresh copies.
#include "tensor_impl.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <vector>

namespace {
using Dims = c10::SmallVector<int64_t, 6>;

// ---- Inputs -------------------------------------------------------------------------------------------------------

struct Input {
    enum { TENSOR, NUMBER, OBJECT } kind = OBJECT;
    bool fixed = false;            // its address is part of the recording
    const void *address = nullptr; // of a tensor; of another object itself, owned
    int64_t number = 0;
    Dims sizes, strides;
};

struct InputLayout {
    std::vector<Input> inputs;
    ~InputLayout()
    {
        for (const Input &each : inputs)
            if (each.kind == Input::OBJECT)
                Py_DECREF((PyObject *)each.address);
    }
};

template <typename T> void destroy(PyObject *capsule) { delete (T *)PyCapsule_GetPointer(capsule, typeid(T).name()); }

template <typename T> PyObject *in_capsule(std::unique_ptr<T> made)
{
    PyObject *capsule = PyCapsule_New(made.get(), typeid(T).name(), destroy<T>);
    if (capsule != nullptr)
        made.release();
    return capsule;
}

template <typename T> T *in(PyObject *capsule) { return (T *)PyCapsule_GetPointer(capsule, typeid(T).name()); }

bool is_plain(const TensorImpl *impl)
{
    return !answers_in_python(impl) && has_plain_sizes(impl) && impl->layout() == c10::kStrided && impl->has_storage();
}

const void *address_of(const TensorImpl *impl)
{
    const char *start = (const char *)impl->unsafe_storage().unsafeGetStorageImpl()->data();
    return start + impl->storage_offset() * (int64_t)impl->itemsize();
}

bool takes_lists(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t wanted, Py_ssize_t list)
{
    if (nargs == wanted && PyList_CheckExact(args[list]))
        return true;
    PyErr_SetString(PyExc_TypeError, "expected a list of tensors");
    return false;
}

// False: an error is set.
bool read(PyObject *value, Input &input)
{
    if (td_is_tensor(value) && is_plain(impl_of(value))) {
        const TensorImpl *impl = impl_of(value);
        input.kind = Input::TENSOR;
        input.address = address_of(impl);
        input.sizes.assign(impl->sizes_default().begin(), impl->sizes_default().end());
        input.strides.assign(impl->strides_default().begin(), impl->strides_default().end());
        return true;
    }
    if (PyLong_CheckExact(value)) {
        input.kind = Input::NUMBER;
        input.number = PyLong_AsLongLong(value);
        return input.number != -1 || !PyErr_Occurred();
    }
    input.address = Py_NewRef(value);
    return true;
}
} // namespace

static PyObject *input_layout(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (!takes_lists(args, nargs, 2, 0))
        return nullptr;
    auto layout = std::make_unique<InputLayout>();
    Py_ssize_t count = PyList_GET_SIZE(args[0]);
    layout->inputs.reserve(count);
    for (Py_ssize_t at = 0; at < count; at++) {
        Input input;
        PyObject *position = PyLong_FromSsize_t(at);
        int fixed = position == nullptr ? -1 : PySequence_Contains(args[1], position);
        Py_XDECREF(position);
        if (fixed < 0 || !read(PyList_GET_ITEM(args[0], at), input))
            return nullptr;
        input.fixed = fixed;
        layout->inputs.push_back(std::move(input));
    }
    return in_capsule(std::move(layout));
    END_HANDLE_TH_ERRORS
}

static PyObject *moved_inputs(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    InputLayout *layout = takes_lists(args, nargs, 2, 1) ? in<InputLayout>(args[0]) : nullptr;
    if (layout == nullptr)
        return nullptr;
    Py_ssize_t count = (Py_ssize_t)layout->inputs.size();
    if (PyList_GET_SIZE(args[1]) != count)
        Py_RETURN_NONE;
    std::vector<Py_ssize_t> moved;
    for (Py_ssize_t at = 0; at < count; at++) {
        const Input &input = layout->inputs[at];
        PyObject *value = PyList_GET_ITEM(args[1], at);
        if (input.kind == Input::TENSOR) {
            const TensorImpl *impl = td_is_tensor(value) ? impl_of(value) : nullptr;
            if (impl == nullptr || !is_plain(impl) || impl->sizes_default() != c10::IntArrayRef(input.sizes) ||
                impl->strides_default() != c10::IntArrayRef(input.strides))
                Py_RETURN_NONE;
            if (input.fixed && address_of(impl) != input.address)
                moved.push_back(at);
        }
        else if (input.kind == Input::NUMBER) {
            if (!PyLong_CheckExact(value) || PyLong_AsLongLong(value) != input.number) {
                PyErr_Clear();
                Py_RETURN_NONE;
            }
        }
        else if (value != input.address)
            Py_RETURN_NONE;
    }
    PyObject *found = PyTuple_New((Py_ssize_t)moved.size());
    for (size_t i = 0; found != nullptr && i < moved.size(); i++)
        PyTuple_SET_ITEM(found, (Py_ssize_t)i, PyLong_FromSsize_t(moved[i]));
    return found;
    END_HANDLE_TH_ERRORS
}

// ---- Results ------------------------------------------------------------------------------------------------------

namespace {
// Keeps a Python object alive for all memory that was handed out at once. The last piece may go without the GIL.
struct Keeper {
    PyObject *object;
    explicit Keeper(PyObject *object) : object(Py_NewRef(object)) {}
    ~Keeper()
    {
        if (!Py_IsInitialized())
            return;
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(object);
        PyGILState_Release(state);
    }
};

void let_go(void *context) { delete (std::shared_ptr<Keeper> *)context; }

struct Memory {
    void *start;
    size_t bytes;
    c10::Device device;
};

struct Result {
    size_t memory; // which
    caffe2::TypeMeta dtype;
    int64_t offset;
    bool conjugate, negative;
    Dims sizes, strides;
};

struct Lender {
    std::vector<Memory> memories;
    std::vector<Result> results;
};

using Lease = std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;

at::Tensor tensor_at(const c10::Storage &storage, const Result &result)
{
    auto keys = c10::DispatchKeySet(c10::computeDispatchKey(c10::typeMetaToScalarType(result.dtype), c10::nullopt,
                                                            storage.device()));
    at::Tensor made = at::detail::make_tensor<TensorImpl>(c10::Storage(storage), keys, result.dtype);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides, result.offset);
    if (result.conjugate)
        made._set_conj(true);
    if (result.negative)
        made._set_neg(true);
    return made;
}

bool all_tensors(PyObject *list)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); at++)
        if (!td_is_tensor(PyList_GET_ITEM(list, at)) || !is_plain(impl_of(PyList_GET_ITEM(list, at)))) {
            PyErr_SetString(PyExc_TypeError, "expected tensors with memory and strides");
            return false;
        }
    return true;
}
} // namespace

static PyObject *lender(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (!takes_lists(args, nargs, 1, 0) || !all_tensors(args[0]))
        return nullptr;
    auto made = std::make_unique<Lender>();
    std::vector<const c10::StorageImpl *> seen;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(args[0]); at++) {
        const at::Tensor &tensor = THPVariable_Unpack(PyList_GET_ITEM(args[0], at));
        const c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
        size_t memory = 0;
        while (memory < seen.size() && seen[memory] != storage)
            memory++;
        if (memory == seen.size()) {
            seen.push_back(storage);
            made->memories.push_back({(void *)storage->data(), storage->nbytes(), storage->device()});
        }
        Result result{memory, tensor.dtype(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg(), {}, {}};
        result.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
        result.strides.assign(tensor.strides().begin(), tensor.strides().end());
        made->results.push_back(std::move(result));
    }
    return in_capsule(std::move(made));
    END_HANDLE_TH_ERRORS
}

static PyObject *lend(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError, "lend takes a lender and a keeper");
    const Lender *from = in<Lender>(args[0]);
    if (from == nullptr)
        return nullptr;
    auto keeper = std::make_shared<Keeper>(args[1]);
    auto lease = std::make_unique<Lease>();
    std::vector<c10::Storage> storages;
    for (const Memory &memory : from->memories) {
        at::DataPtr data(memory.start, new std::shared_ptr<Keeper>(keeper), let_go, memory.device);
        storages.emplace_back(c10::Storage::use_byte_size_t(), memory.bytes, std::move(data),
                              c10::GetAllocator(memory.device.type()), true);
        lease->push_back(storages.back().getWeakStorageImpl());
    }
    PyObject *tensors = PyList_New((Py_ssize_t)from->results.size());
    for (size_t at = 0; tensors != nullptr && at < from->results.size(); at++) {
        const Result &result = from->results[at];
        PyObject *tensor = THPVariable_Wrap(tensor_at(storages[result.memory], result));
        if (tensor == nullptr) {
            Py_DECREF(tensors);
            return nullptr;
        }
        PyList_SET_ITEM(tensors, (Py_ssize_t)at, tensor);
    }
    PyObject *held = tensors == nullptr ? nullptr : in_capsule(std::move(lease));
    if (held == nullptr) {
        Py_XDECREF(tensors);
        return nullptr;
    }
    return Py_BuildValue("NN", tensors, held);
    END_HANDLE_TH_ERRORS
}

static PyObject *watch(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (!takes_lists(args, nargs, 1, 0) || !all_tensors(args[0]))
        return nullptr;
    auto lease = std::make_unique<Lease>();
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(args[0]); at++)
        lease->push_back(THPVariable_Unpack(PyList_GET_ITEM(args[0], at)).storage().getWeakStorageImpl());
    return in_capsule(std::move(lease));
    END_HANDLE_TH_ERRORS
}

static PyObject *is_alive(PyObject *, PyObject *capsule)
{
    const Lease *lease = in<Lease>(capsule);
    if (lease == nullptr)
        return nullptr;
    for (const auto &each : *lease)
        if (!each.expired())
            Py_RETURN_TRUE;
    Py_RETURN_FALSE;
}

static PyObject *alive(PyObject *, PyObject *capsule)
{
    const Lease *lease = in<Lease>(capsule);
    PyObject *found = lease == nullptr ? nullptr : PyList_New(0);
    for (size_t at = 0; found != nullptr && at < lease->size(); at++) {
        if ((*lease)[at].expired())
            continue;
        PyObject *position = PyLong_FromSize_t(at);
        if (position == nullptr || PyList_Append(found, position) < 0)
            Py_CLEAR(found);
        Py_XDECREF(position);
    }
    return found;
}

static PyObject *copies(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (!takes_lists(args, nargs, 1, 0) || !all_tensors(args[0]))
        return nullptr;
    Py_ssize_t count = PyList_GET_SIZE(args[0]);
    std::vector<at::Tensor> made;
    std::vector<at::ScalarType> types;
    std::vector<std::vector<at::Tensor>> to, from; // by type: one kernel for each
    PyObject *result = PyList_New(count);
    if (result == nullptr)
        return nullptr;
    for (Py_ssize_t at = 0; at < count; at++) {
        const at::Tensor &source = THPVariable_Unpack(PyList_GET_ITEM(args[0], at));
        made.push_back(at::empty_strided(source.sizes(), source.strides(), source.options()));
        size_t type = 0;
        while (type < types.size() && types[type] != source.scalar_type())
            type++;
        if (type == types.size()) {
            types.push_back(source.scalar_type());
            to.emplace_back();
            from.emplace_back();
        }
        to[type].push_back(made.back());
        from[type].push_back(source);
    }
    {
        pybind11::gil_scoped_release no_gil;
        for (size_t type = 0; type < types.size(); type++)
            if (to[type].size() == 1)
                to[type][0].copy_(from[type][0]);
            else
                at::_foreach_copy_(to[type], from[type]);
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *tensor = THPVariable_Wrap(std::move(made[at]));
        if (tensor == nullptr) {
            Py_DECREF(result);
            return nullptr;
        }
        PyList_SET_ITEM(result, at, tensor);
    }
    return result;
    END_HANDLE_TH_ERRORS
}

#define TD_FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef functions[] = {
    {"input_layout", TD_FAST(input_layout),
     "input_layout(inputs, fixed) -> where inputs lie and what they look like; the addresses of those at `fixed` count."},
    {"moved_inputs", TD_FAST(moved_inputs),
     "moved_inputs(layout, inputs) -> positions whose address has changed; None if sizes, strides or numbers have."},
    {"lender", TD_FAST(lender), "lender(tensors) -> what `lend` makes such tensors of, without keeping these alive."},
    {"lend", TD_FAST(lend),
     "lend(lender, keeper) -> (new tensors in the same memory, lease). They keep `keeper` alive."},
    {"watch", TD_FAST(watch), "watch(tensors) -> lease that tells whose memory is still in use."},
    {"is_alive", is_alive, METH_O, "is_alive(lease) -> bool: some of its memory is in use."},
    {"alive", alive, METH_O, "alive(lease) -> positions of the memory that is in use."},
    {"copies", TD_FAST(copies), "copies(tensors) -> tensors of the same layout in memory of their own."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_recordings_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
