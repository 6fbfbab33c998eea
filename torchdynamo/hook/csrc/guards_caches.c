/* Where functools.lru_cache keeps its results: a dict without a name, at one place in every such function. */
#include "guards.h"

static PyTypeObject *cached_type;
static Py_ssize_t offset; /* 0: not found, as where functools is not CPython's */

PyObject **td_cache_place(PyObject *obj)
{
    return offset != 0 && Py_IS_TYPE(obj, cached_type) ? (PyObject **)((char *)obj + offset) : NULL;
}

/* cache_of(function) -> dict | None */
static PyObject *cache_of(PyObject *Py_UNUSED(module), PyObject *obj)
{
    PyObject **place = td_cache_place(obj);
    return Py_NewRef(place == NULL || *place == NULL ? Py_None : *place);
}

/* The word of a function just made that is the only dict it refers to, but for its `__dict__`. */
static void find_offset(PyObject *made, PyObject *own, PyObject *referents)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(referents); i++) {
        PyObject *each = PyList_GET_ITEM(referents, i);
        if (!PyDict_CheckExact(each) || each == own)
            continue;
        for (Py_ssize_t at = sizeof(PyObject); at + (Py_ssize_t)sizeof(PyObject *) <= cached_type->tp_basicsize;
             at += sizeof(PyObject *))
            if (*(PyObject **)((char *)made + at) == each)
                offset = at;
    }
}

static PyMethodDef functions[] = {
    {"cache_of", cache_of, METH_O, "cache_of(function) -> where functools.lru_cache keeps the results, or None."},
    {NULL, NULL, 0, NULL},
};

int td_caches_init(PyObject *module)
{
    PyObject *functools = PyImport_ImportModule("functools"), *gc = PyImport_ImportModule("gc");
    PyObject *maker = functools == NULL ? NULL : PyObject_CallMethod(functools, "lru_cache", "O", Py_None);
    PyObject *made = maker == NULL ? NULL : PyObject_CallOneArg(maker, (PyObject *)&PyBaseObject_Type);
    PyObject *own = made == NULL ? NULL : PyObject_GetAttrString(made, "__dict__");
    PyObject *referents = own == NULL || gc == NULL ? NULL : PyObject_CallMethod(gc, "get_referents", "O", made);
    if (referents != NULL && PyList_CheckExact(referents)) {
        cached_type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(made));
        find_offset(made, own, referents);
    }
    Py_XDECREF(functools);
    Py_XDECREF(gc);
    Py_XDECREF(maker);
    Py_XDECREF(made);
    Py_XDECREF(own);
    Py_XDECREF(referents);
    return PyErr_Occurred() ? -1 : PyModule_AddFunctions(module, functions);
}
