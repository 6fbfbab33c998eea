/* What CPython knows of functions and types in C and does not tell in Python. */
#include "guards.h"
#include "hook.h"

/* call_flags(function) -> int | None */
static PyObject *call_flags(PyObject *Py_UNUSED(module), PyObject *obj)
{
    PyMethodDef *method = NULL;
    if (PyCFunction_Check(obj))
        method = ((PyCFunctionObject *)obj)->m_ml;
    else if (Py_IS_TYPE(obj, &PyMethodDescr_Type) || Py_IS_TYPE(obj, &PyClassMethodDescr_Type))
        method = ((PyMethodDescrObject *)obj)->d_method;
    if (method == NULL)
        Py_RETURN_NONE;
    return PyLong_FromLong(method->ml_flags);
}

/* type_name(type) -> str */
static PyObject *type_name(PyObject *Py_UNUSED(module), PyObject *obj)
{
    if (!PyType_Check(obj)) {
        PyErr_SetString(PyExc_TypeError, "type_name() takes a type");
        return NULL;
    }
    return PyUnicode_FromString(((PyTypeObject *)obj)->tp_name);
}

/* made_plainly(type) -> bool */
static PyObject *made_plainly(PyObject *Py_UNUSED(module), PyObject *obj)
{
    return PyBool_FromLong(PyType_Check(obj) && td_made_plainly((PyTypeObject *)obj));
}

/* collection_flags(type) -> int */
static PyObject *collection_flags(PyObject *Py_UNUSED(module), PyObject *obj)
{
    return PyLong_FromSsize_t(PyType_Check(obj) ? td_collection((PyTypeObject *)obj) : -1);
}

static PyMethodDef functions[] = {
    {"call_flags", call_flags, METH_O, "call_flags(function) -> the METH_ flags of a function or method in C, or None."},
    {"type_name", type_name, METH_O, "type_name(type) -> its name as CPython's errors have it: some with the module."},
    {"made_plainly", made_plainly, METH_O, "made_plainly(type) -> whether C makes its instances by object.__new__."},
    {"collection_flags", collection_flags, METH_O,
     "collection_flags(type) -> those of its flags that make its instances match patterns of sequences or mappings."},
    {NULL, NULL, 0, NULL},
};

int td_callables_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
