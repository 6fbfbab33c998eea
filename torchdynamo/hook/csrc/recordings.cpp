// What recordings of CUDA graphs ask of tensors: are inputs where they were, and who has results.
#include "recordings.h"

#include <c10/core/Allocator.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

using namespace td;

// ---- Inputs -------------------------------------------------------------------------------------------------------

namespace {
bool takes_lists(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t wanted, Py_ssize_t list)
{
    if (nargs == wanted && PyList_CheckExact(args[list]))
        return true;
    PyErr_SetString(PyExc_TypeError, "expected a list of tensors");
    return false;
}

// False: an error is set.
bool read(PyObject *value, Input &input, std::vector<int64_t> &numbers)
{
    if (td_is_tensor(value) && is_plain(impl_of(value))) {
        const TensorImpl *impl = impl_of(value);
        input.kind = Input::TENSOR;
        input.keys = impl->key_set();
        input.address = address_of(impl);
        input.storage = impl->unsafe_storage().unsafeGetStorageImpl();
        input.dims = (uint16_t)impl->sizes_default().size();
        input.begin = (uint32_t)numbers.size();
        numbers.insert(numbers.end(), impl->sizes_default().begin(), impl->sizes_default().end());
        numbers.insert(numbers.end(), impl->strides_default().begin(), impl->strides_default().end());
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

bool looks_alike(const TensorImpl *impl, const Input &input, const int64_t *numbers)
{
    if (impl->key_set() == input.keys ? !impl->has_storage() || !has_plain_sizes(impl) : !is_plain(impl))
        return false;
    c10::IntArrayRef sizes = impl->sizes_default(), strides = impl->strides_default();
    if (sizes.size() != input.dims)
        return false;
    for (size_t dim = 0; dim < sizes.size(); dim++)
        if (sizes[dim] != numbers[dim] || strides[dim] != numbers[sizes.size() + dim])
            return false;
    return true;
}

bool is_number(PyObject *value, int64_t number)
{
    int overflow;
    return PyLong_CheckExact(value) && PyLong_AsLongLongAndOverflow(value, &overflow) == number && !overflow;
}

#define AHEAD 4 // inputs whose memory is asked for before it is looked at

void look_ahead(PyObject *value, const Input &input)
{
    if (input.kind != Input::TENSOR || !td_is_tensor(value))
        return;
    const char *impl = (const char *)impl_of(value);
    __builtin_prefetch(impl);
    __builtin_prefetch(impl + 64);
    __builtin_prefetch(impl + 128);
    __builtin_prefetch(input.storage);
}
} // namespace

InputLayout::~InputLayout()
{
    for (const Input &each : inputs)
        if (each.kind == Input::OBJECT)
            Py_DECREF((PyObject *)each.address);
}

static Fit fit_first(const InputLayout &layout, PyObject *const *values, Py_ssize_t count, std::vector<Py_ssize_t> *moved)
{
    Fit found = Fit::YES;
    for (Py_ssize_t at = 0; at < count; at++) {
        const Input &input = layout.inputs[at];
        if (at + AHEAD < count)
            look_ahead(values[at + AHEAD], layout.inputs[at + AHEAD]);
        if (input.kind == Input::TENSOR) {
            const TensorImpl *impl = td_is_tensor(values[at]) ? impl_of(values[at]) : nullptr;
            if (impl == nullptr || !looks_alike(impl, input, layout.numbers.data() + input.begin))
                return Fit::NO;
            if (input.fixed && address_of(impl) != input.address) {
                found = Fit::MOVED;
                if (moved != nullptr)
                    moved->push_back(at);
            }
        }
        else if (input.kind == Input::NUMBER ? !is_number(values[at], input.number) : values[at] != input.address)
            return Fit::NO;
    }
    return found;
}

Fit td::fit(const InputLayout &layout, PyObject *const *values, Py_ssize_t count, std::vector<Py_ssize_t> *moved)
{
    return count == (Py_ssize_t)layout.inputs.size() ? fit_first(layout, values, count, moved) : Fit::NO;
}

Fit td::fit_again(InputLayout &layout, PyObject *const *values, Py_ssize_t count, const TdPlaced &seen)
{
    Py_ssize_t placed = seen.from != nullptr ? seen.from - values : count;
    if (seen.places != 0 && seen.places == layout.places && placed == layout.placed &&
        count == (Py_ssize_t)layout.inputs.size())
        return fit_first(layout, values, placed, nullptr);
    Fit found = fit(layout, values, count, nullptr);
    if (found == Fit::YES && seen.places != 0) {
        layout.places = seen.places;
        layout.placed = placed;
    }
    else if (found == Fit::YES && placed < count)
        td_placed_wanted(values, count);
    return found;
}

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
        if (fixed < 0 || !read(PyList_GET_ITEM(args[0], at), input, layout->numbers))
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
    std::vector<Py_ssize_t> moved;
    if (fit(*layout, ((PyListObject *)args[1])->ob_item, PyList_GET_SIZE(args[1]), &moved) == Fit::NO)
        Py_RETURN_NONE;
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

std::unique_ptr<Lease> td::lend_to(const Lender &from, PyObject *keeper, std::vector<at::Tensor> &tensors)
{
    auto kept = std::make_shared<Keeper>(keeper);
    auto lease = std::make_unique<Lease>();
    std::vector<c10::Storage> storages;
    for (const Memory &memory : from.memories) {
        at::DataPtr data(memory.start, new std::shared_ptr<Keeper>(kept), let_go, memory.device);
        storages.emplace_back(c10::Storage::use_byte_size_t(), memory.bytes, std::move(data),
                              c10::GetAllocator(memory.device.type()), true);
        lease->push_back(storages.back().getWeakStorageImpl());
    }
    for (const Result &result : from.results)
        tensors.push_back(tensor_at(storages[result.memory], result));
    return lease;
}

bool td::is_used(const Lease &lease)
{
    for (const auto &each : lease)
        if (!each.expired())
            return true;
    return false;
}

static PyObject *lend(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError, "lend takes a lender and a keeper");
    const Lender *from = in<Lender>(args[0]);
    if (from == nullptr)
        return nullptr;
    std::vector<at::Tensor> made;
    THPObjectPtr lease(in_capsule(lend_to(*from, args[1], made)));
    THPObjectPtr tensors(PyList_New((Py_ssize_t)made.size()));
    for (size_t at = 0; tensors && at < made.size(); at++) {
        PyObject *tensor = THPVariable_Wrap(std::move(made[at]));
        if (tensor == nullptr)
            return nullptr;
        PyList_SET_ITEM(tensors.get(), (Py_ssize_t)at, tensor);
    }
    return lease && tensors ? PyTuple_Pack(2, tensors.get(), lease.get()) : nullptr;
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
    return PyBool_FromLong(is_used(*lease));
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

#define TD_FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef recording_functions[] = {
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
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_recordings_init(PyObject *module) { return PyModule_AddFunctions(module, recording_functions); }
