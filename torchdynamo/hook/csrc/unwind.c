/* Which libraries the thread is in: a Python exception must not be raised inside of all of them.
 *
 * A function of C++ that says it does not throw ends the process if what it calls does, and torch has such functions call
 * Python. Nothing tells them from others, so all of torch counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unwind.h>

#include "hook.h"

#define AROUND 512 /* bytes: less than what a Python function takes of the C stack, more than the calls between */

typedef struct {
    uintptr_t outermost;
    int found;
} Search;

static int is_torchs(void *address)
{
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
        return 0;
    const char *slash = strrchr(info.dli_fname, '/'), *name = slash != NULL ? slash + 1 : info.dli_fname;
    return strncmp(name, "libtorch", 8) == 0 || strncmp(name, "libc10", 6) == 0 || strncmp(name, "libtriton", 9) == 0;
}

static _Unwind_Reason_Code look_at(struct _Unwind_Context *context, void *argument)
{
    Search *search = argument;
    if (_Unwind_GetCFA(context) > search->outermost)
        return _URC_END_OF_STACK;
    search->found = is_torchs((void *)(_Unwind_GetIP(context) - 1));
    return search->found ? _URC_END_OF_STACK : _URC_NO_REASON;
}

PyDoc_STRVAR(stack_place_doc, "stack_place()\n--\n\nReturn where on the C stack the caller is, for in_torch.");

static PyObject *stack_place(PyObject *module, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong((uintptr_t)__builtin_frame_address(0));
}

PyDoc_STRVAR(in_torch_doc,
             "in_torch(place, /)\n--\n\n"
             "Return whether, of the calls made since `stack_place()` gave this place, one of torch's C++ is under way.");

static PyObject *in_torch(PyObject *module, PyObject *place)
{
    Search search = {PyLong_AsUnsignedLongLong(place) + AROUND, 0};
    if (PyErr_Occurred())
        return NULL;
    _Unwind_Backtrace(look_at, &search);
    return PyBool_FromLong(search.found);
}

static PyMethodDef unwind_functions[] = {
    {"stack_place", stack_place, METH_NOARGS, stack_place_doc},
    {"in_torch", in_torch, METH_O, in_torch_doc},
    {NULL},
};

int td_unwind_init(PyObject *module) { return PyModule_AddFunctions(module, unwind_functions); }
