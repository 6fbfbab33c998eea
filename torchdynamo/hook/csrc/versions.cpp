// Whether tensors that a graph has made constants of are the same objects, in the same memory, and not written to.
#include "tensor_impl.h"

#include <cstring>

namespace {
struct Fact {
    PyObject *tensor; // compared, never read: whoever keeps the facts drops them when it dies
    const void *impl, *memory;
    uint64_t version;
    Py_ssize_t position;
};

// False: an error is set.
bool fact_of(PyObject *obj, Py_ssize_t position, Fact &fact)
{
    if (!td_is_tensor(obj)) {
        PyErr_Format(PyExc_TypeError, "%R is no tensor", obj);
        return false;
    }
    TensorImpl *impl = THPVariable_Unpack(obj).unsafeGetTensorImpl();
    if (impl->is_inference() || !impl->has_storage()) {
        PyErr_SetString(PyExc_ValueError, "a tensor that has no version or no storage");
        return false;
    }
    const c10::StorageImpl *storage = impl->unsafe_storage().unsafeGetStorageImpl();
    fact = {obj, impl, storage->data(), impl->version_counter().current_version(), position};
    return true;
}

bool holds(const Fact &fact, PyObject *obj)
{
    if (obj != fact.tensor)
        return false;
    const TensorImpl *impl = impl_of(obj);
    return impl == fact.impl && impl->unsafe_storage().unsafeGetStorageImpl()->data() == fact.memory &&
           impl->version_counter().current_version() == fact.version;
}
} // namespace

static PyObject *tensor_facts(PyObject *, PyObject *args)
{
    PyObject *tensors, *positions;
    if (!PyArg_ParseTuple(args, "O!O!:tensor_facts", &PyTuple_Type, &tensors, &PyTuple_Type, &positions))
        return nullptr;
    Py_ssize_t count = PyTuple_GET_SIZE(positions);
    PyObject *facts = PyBytes_FromStringAndSize(nullptr, count * (Py_ssize_t)sizeof(Fact));
    for (Py_ssize_t i = 0; facts != nullptr && i < count; i++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, i));
        Fact fact;
        if (position < 0 || position >= PyTuple_GET_SIZE(tensors)) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_IndexError, "there is no tensor %zd", position);
            Py_CLEAR(facts);
        } else if (!fact_of(PyTuple_GET_ITEM(tensors, position), position, fact))
            Py_CLEAR(facts);
        else
            std::memcpy(PyBytes_AS_STRING(facts) + i * sizeof(Fact), &fact, sizeof(Fact));
    }
    return facts;
}

static PyObject *tensor_facts_hold(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyBytes_Check(args[0]) || !PyTuple_Check(args[1]) ||
        PyBytes_GET_SIZE(args[0]) % (Py_ssize_t)sizeof(Fact) != 0) {
        PyErr_SetString(PyExc_TypeError, "tensor_facts_hold takes what tensor_facts gave, and a tuple");
        return nullptr;
    }
    const char *facts = PyBytes_AS_STRING(args[0]);
    for (Py_ssize_t at = 0; at < PyBytes_GET_SIZE(args[0]); at += sizeof(Fact)) {
        Fact fact;
        std::memcpy(&fact, facts + at, sizeof(Fact));
        if (fact.position >= PyTuple_GET_SIZE(args[1]) || !holds(fact, PyTuple_GET_ITEM(args[1], fact.position)))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef version_functions[] = {
    {"tensor_facts", tensor_facts, METH_VARARGS,
     "tensor_facts(tensors, positions) -> bytes: identity, address and version of the tensors at these positions. The\n"
     "caller drops the facts when one of them dies. Raises ValueError for a tensor that has no version."},
    {"tensor_facts_hold", (PyCFunction)(void (*)(void))tensor_facts_hold, METH_FASTCALL,
     "tensor_facts_hold(facts, tensors) -> bool: they are the same objects, in the same memory, and not written to."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_versions_init(PyObject *module) { return PyModule_AddFunctions(module, version_functions); }
