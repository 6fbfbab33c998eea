/* Running an entry's code in place of a frame's own. */
#include "hook.h"

/* The arguments of a call. */
typedef struct {
    PyObject **values; /* one free slot before the first, for vectorcall */
    Py_ssize_t positional;
    PyObject *names;   /* tuple of keyword names */
} Call;

static void call_clear(Call *call)
{
    PyMem_Free(call->values);
    Py_XDECREF(call->names);
}

/* Take the arguments of a frame that has not started apart again, into what its caller might have passed. */
static int call_from_frame(const TdFrame *view, Call *call)
{
    PyCodeObject *code = view->code;
    Py_ssize_t plain = code->co_argcount, kwonly = code->co_kwonlyargcount, next = plain + kwonly;
    PyObject *rest = code->co_flags & CO_VARARGS ? view->localsplus[next++] : NULL;
    PyObject *more = code->co_flags & CO_VARKEYWORDS ? view->localsplus[next] : NULL;
    Py_ssize_t extra = rest ? PyTuple_GET_SIZE(rest) : 0, named = kwonly + (more ? PyDict_GET_SIZE(more) : 0);
    PyObject *varnames = PyObject_GetAttrString((PyObject *)code, "co_varnames");
    call->values = PyMem_Malloc((1 + plain + extra + named) * sizeof(PyObject *));
    call->names = varnames != NULL && call->values != NULL ? PyTuple_New(named) : NULL;
    call->positional = plain + extra;
    if (call->names == NULL) {
        Py_XDECREF(varnames);
        PyMem_Free(call->values);
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    PyObject **value = call->values + 1;
    for (Py_ssize_t i = 0; i < plain; i++)
        *value++ = view->localsplus[i];
    for (Py_ssize_t i = 0; i < extra; i++)
        *value++ = PyTuple_GET_ITEM(rest, i);
    for (Py_ssize_t i = 0; i < kwonly; i++) {
        *value++ = view->localsplus[plain + i];
        PyTuple_SET_ITEM(call->names, i, Py_NewRef(PyTuple_GET_ITEM(varnames, plain + i)));
    }
    Py_ssize_t at = 0, i = kwonly;
    PyObject *key, *item;
    while (more != NULL && PyDict_Next(more, &at, &key, &item)) {
        *value++ = item;
        PyTuple_SET_ITEM(call->names, i++, Py_NewRef(key));
    }
    Py_DECREF(varnames);
    return 0;
}

/* A function like the frame's, with other code. */
static PyObject *function_with_code(const TdFrame *view, PyCodeObject *code)
{
    PyFunctionObject *like = (PyFunctionObject *)view->func;
    PyObject *func = PyFunction_NewWithQualName((PyObject *)code, view->globals, like->func_qualname);
    if (func == NULL)
        return NULL;
    Py_XSETREF(((PyFunctionObject *)func)->func_name, Py_NewRef(like->func_name));
    if (like->func_closure != NULL && PyFunction_SetClosure(func, like->func_closure) < 0)
        Py_CLEAR(func);
    return func;
}

/* Where the frame has no room for the code: call a function made of it, whose frame our hook then lets by. */
static PyObject *run_elsewhere(const TdFrame *view, PyCodeObject *code, PyObject *bound, Py_ssize_t slot)
{
    TdThread *thread = td_thread;
    Call call;
    PyObject *func = function_with_code(view, code);
    if (func == NULL || call_from_frame(view, &call) < 0) {
        Py_XDECREF(func);
        Py_XDECREF(bound);
        return NULL;
    }
    /* Binding the arguments must not run the garbage collector, and so any code, in which another thread could take the
     * hook out: the frame would not come by. */
    PyObject *outer = thread->awaited, *outer_bound = thread->awaited_bound;
    Py_ssize_t outer_slot = thread->awaited_slot;
    int outer_gc = thread->awaited_gc;
    thread->awaited = func;
    thread->awaited_gc = td_gc_pause();
    thread->awaited_bound = bound;
    thread->awaited_slot = slot;
    PyObject *result = PyObject_Vectorcall(
        func, call.values + 1, (size_t)call.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, call.names);
    if (thread->awaited == func) { /* the call failed before its frame was made */
        td_gc_resume(thread->awaited_gc);
        Py_XDECREF(bound);
    }
    thread->awaited = outer;
    thread->awaited_bound = outer_bound;
    thread->awaited_slot = outer_slot;
    thread->awaited_gc = outer_gc;
    call_clear(&call);
    Py_DECREF(func);
    return result;
}

PyObject *td_enter_entry(PyThreadState *tstate, TdRawFrame *frame, TdFrame *view, TdEntry *entry, PyObject *bound)
{
    Py_ssize_t slot = entry->bound_slot;
    entry->hits++;
    if (slot < 0)
        Py_CLEAR(bound);
    if (entry->code == view->code && bound == NULL) {
        Py_DECREF(entry);
        td_frame_close(view);
        return TD_RUN_IT;
    }
    if (TD_LIKELY(td_frame_swap(tstate, frame, entry->code, entry->nargs))) {
        if (bound != NULL)
            td_frame_store(frame, slot, bound);
        Py_DECREF(entry);
        return TD_RUN_IT;
    }
    if (!td_frame_discardable(frame) || td_hook_is_suspended()) {
        Py_XDECREF(bound);
        Py_DECREF(entry);
        td_frame_close(view);
        return TD_RUN_IT;
    }
    PyCodeObject *code = (PyCodeObject *)Py_NewRef((PyObject *)entry->code);
    Py_DECREF(entry);
    PyObject *result = run_elsewhere(view, code, bound, slot);
    Py_DECREF(code);
    td_frame_close(view);
    td_frame_discard(tstate, frame);
    return result;
}
