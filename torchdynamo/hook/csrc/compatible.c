/* May one code object run in a frame made for another? Asked once per entry, so that a hit need not. */
#include "hook.h"

Py_ssize_t td_code_nargs(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0)
           + ((code->co_flags & CO_VARKEYWORDS) != 0);
}

static PyObject *names_of(PyCodeObject *code, const char *which, Py_ssize_t first)
{
    PyObject *names = PyObject_GetAttrString((PyObject *)code, which);
    if (names == NULL || first < 0)
        return names;
    PyObject *slice = PyTuple_GetSlice(names, 0, first);
    Py_DECREF(names);
    return slice;
}

static int refuse(PyCodeObject *code, const char *what, PyObject *expected, PyObject *found)
{
    PyErr_Format(PyExc_ValueError, "this code cannot run in a frame of %U: its %s %R, and must be %R", code->co_name,
                 what, found, expected);
    return -1;
}

static int same_names(PyCodeObject *code, PyCodeObject *other, const char *which, Py_ssize_t first, const char *what)
{
    PyObject *expected = names_of(code, which, first), *found = names_of(other, which, first);
    int same = expected != NULL && found != NULL ? PyObject_RichCompareBool(expected, found, Py_EQ) : -1;
    if (same == 0)
        same = refuse(code, what, expected, found);
    Py_XDECREF(expected);
    Py_XDECREF(found);
    return same < 0 ? -1 : 0;
}

static int same_number(PyCodeObject *code, long expected, long found, const char *what)
{
    if (expected == found)
        return 0;
    PyErr_Format(PyExc_ValueError, "this code cannot run in a frame of %U: its %s %ld, and must be %ld", code->co_name,
                 what, found, expected);
    return -1;
}

int td_check_compatible(PyCodeObject *code, PyCodeObject *replacement)
{
    if (code == replacement)
        return 0;
    const char *fault = code->co_flags & replacement->co_flags & CO_OPTIMIZED ? td_code_prologue_fault(replacement)
                                                                               : "one of them is not a function's";
    if (fault != NULL) {
        PyErr_Format(PyExc_ValueError, "this code cannot run in a frame of %U: %s", code->co_name, fault);
        return -1;
    }
    int flags = TD_FLAGS_OF_A_CALL;
    int differs
        = same_number(code, code->co_argcount, replacement->co_argcount, "number of arguments is") < 0
          || same_number(code, code->co_posonlyargcount, replacement->co_posonlyargcount,
                         "number of positional-only arguments is") < 0
          || same_number(code, code->co_kwonlyargcount, replacement->co_kwonlyargcount,
                         "number of keyword-only arguments is") < 0
          || same_number(code, code->co_flags & flags, replacement->co_flags & flags, "flags are") < 0
          || same_names(code, replacement, "co_varnames", td_code_nargs(code), "arguments are") < 0
          || same_names(code, replacement, "co_freevars", -1, "free variables are") < 0;
    return differs ? -1 : 0;
}

int td_local_slot(PyCodeObject *code, const char *wanted, Py_ssize_t *slot)
{
    PyObject *name = PyUnicode_FromString(wanted), *locals = names_of(code, "co_varnames", -1);
    PyObject *cells = names_of(code, "co_cellvars", -1);
    int found = -1;
    *slot = -1;
    if (name != NULL && locals != NULL && cells != NULL)
        found = PySequence_Contains(cells, name);
    if (found == 1)
        PyErr_Format(PyExc_ValueError, "the local %U must not be a cell", name);
    for (Py_ssize_t i = td_code_nargs(code); found == 0 && i < PyTuple_GET_SIZE(locals); i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(locals, i), name) == 0)
            *slot = i;
    Py_XDECREF(name);
    Py_XDECREF(locals);
    Py_XDECREF(cells);
    return found == 0 ? 0 : -1;
}

PyDoc_STRVAR(check_compatible_doc,
             "check_compatible(code, replacement, /)\n--\n\n"
             "Raise ValueError if replacement cannot run in frames that were made for code.");

static PyObject *check_compatible(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyCode_Check(args[0]) || !PyCode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "check_compatible takes two code objects");
        return NULL;
    }
    if (td_check_compatible((PyCodeObject *)args[0], (PyCodeObject *)args[1]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef td_compatible_functions[] = {
    {"check_compatible", (PyCFunction)(void (*)(void))check_compatible, METH_FASTCALL, check_compatible_doc},
    {NULL},
};
