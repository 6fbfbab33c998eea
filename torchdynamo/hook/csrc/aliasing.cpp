// Whether tensors share memory with one another.
#include "tensor_impl.h"

#include <algorithm>
#include <vector>

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

static PyMethodDef aliasing_functions[] = {
    {"tensors_apart", tensors_apart, METH_VARARGS,
     "tensors_apart(written, read) -> bool: those written to share no byte of storage with each other or those read."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_aliasing_init(PyObject *module) { return PyModule_AddFunctions(module, aliasing_functions); }
