// Tell a recording where its inputs lie that move: it reads them itself, at addresses that wait in memory of the host.
#include "replays.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

using namespace td;

// pointers: None, or (positions, slots, addresses, begun, width, wait). False: an error is set.
bool td::read_pointers(PyObject *given, Pointers &into)
{
    PyObject *positions, *slots, *addresses, *begun, *wait;
    Py_ssize_t width;
    if (given == Py_None)
        return true;
    if (!PyArg_ParseTuple(given, "OO!OOnO", &positions, &PyList_Type, &slots, &addresses, &begun, &width, &wait) ||
        !read_positions(positions, into.positions) || !read_tensors(slots, into.slots))
        return false;
    if (!td_is_tensor(addresses) || !td_is_tensor(begun) || into.positions.empty() || into.slots.size() != into.positions.size())
        return PyErr_SetString(PyExc_TypeError, "expected as many slots as positions, and tensors"), false;
    into.addresses = THPVariable_Unpack(addresses);
    into.begun = THPVariable_Unpack(begun);
    into.width = (uintptr_t)width;
    into.wait = Py_NewRef(wait);
    into.next = into.free = *into.begun.data_ptr<int64_t>();
    return true;
}

// The launches that have read their addresses, all of them.
static int64_t begun_by_all(const Pointers &pointers)
{
    const volatile int64_t *begun = pointers.begun.data_ptr<int64_t>();
    int64_t least = begun[0];
    for (size_t at = 1; at < pointers.positions.size(); at++)
        least = std::min(least, (int64_t)begun[at]);
    return least;
}

// There is a row of addresses that no launch has to read any more. False: an error is set.
static bool has_row(Pointers &pointers)
{
    int64_t rows = pointers.addresses.size(0);
    if (pointers.next < pointers.free)
        return true;
    pointers.free = begun_by_all(pointers) + rows;
    if (pointers.next < pointers.free)
        return true;
    THPObjectPtr waited(PyObject_CallNoArgs(pointers.wait));
    if (!waited)
        return false;
    pointers.free = begun_by_all(pointers) + rows;
    if (pointers.next < pointers.free)
        return true;
    return PyErr_SetString(PyExc_RuntimeError, "launches of a recording have not read their inputs"), false;
}

bool td::point(Pointers &pointers, PyObject *const *inputs, uint64_t stream)
{
    size_t count = pointers.positions.size();
    if (count == 0)
        return true;
    if (!has_row(pointers))
        return false;
    int64_t *row = pointers.addresses.data_ptr<int64_t>() + pointers.next % pointers.addresses.size(0) * (int64_t)count;
    for (size_t at = 0; at < count; at++) {
        const at::Tensor &input = THPVariable_Unpack(inputs[pointers.positions[at]]), &slot = pointers.slots[at];
        const void *place = address_of(input.unsafeGetTensorImpl());
        if ((uintptr_t)place % pointers.width != 0 || input.dtype() != slot.dtype()) {
            copy_all({slot}, {input}, stream); // and the recording copies the slot to itself
            place = address_of(slot.unsafeGetTensorImpl());
        }
        row[at] = (int64_t)(uintptr_t)place;
    }
    return true;
}
