/* Running an entry's code in place of a frame's own, and a frame's own in place of an entry's. */
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

/* Take a frame's arguments apart again, into what its caller might have passed. `passed` are its first slots. */
static int call_from_frame(const TdFrame *view, PyObject *const *passed, Call *call)
{
    PyCodeObject *code = view->code;
    Py_ssize_t plain = code->co_argcount, kwonly = code->co_kwonlyargcount, next = plain + kwonly;
    PyObject *rest = code->co_flags & CO_VARARGS ? passed[next++] : NULL;
    PyObject *more = code->co_flags & CO_VARKEYWORDS ? passed[next] : NULL;
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
        *value++ = passed[i];
    for (Py_ssize_t i = 0; i < extra; i++)
        *value++ = PyTuple_GET_ITEM(rest, i);
    for (Py_ssize_t i = 0; i < kwonly; i++) {
        *value++ = passed[plain + i];
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

PyObject *td_with_globals(PyObject *module, PyObject *args)
{
    PyObject *like, *globals;
    if (!PyArg_ParseTuple(args, "O!O!:with_globals", &PyFunction_Type, &like, &PyDict_Type, &globals))
        return NULL;
    PyObject *func = PyFunction_New(PyFunction_GET_CODE(like), globals), *closure = PyFunction_GET_CLOSURE(like);
    if (func != NULL && closure != NULL && PyFunction_SetClosure(func, closure) < 0)
        Py_CLEAR(func);
    return func;
}

/* Where the frame has no room for the code: call a function made of it, whose frame our hook then lets by. */
static PyObject *run_elsewhere(const TdFrame *view, PyCodeObject *code, TdAwaited awaited)
{
    TdThread *thread = td_thread;
    Call call;
    PyObject *func = function_with_code(view, code), *result = NULL;
    int failed = func == NULL || call_from_frame(view, view->localsplus, &call) < 0;
    if (!failed) {
        /* Binding the arguments must not run the garbage collector, and so any code, in which another thread could take
         * the hook out: the frame would not come by. */
        TdAwaited outer = thread->awaited;
        thread->awaited = awaited;
        thread->awaited.func = func;
        thread->awaited.gc = td_gc_pause();
        result = PyObject_Vectorcall(
            func, call.values + 1, (size_t)call.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, call.names);
        failed = thread->awaited.func == func; /* the call failed before its frame was made */
        if (failed)
            td_gc_resume(thread->awaited.gc);
        thread->awaited = outer;
        call_clear(&call);
    }
    if (failed) {
        td_hook_awaited();
        Py_XDECREF(awaited.bound);
        Py_XDECREF(awaited.local);
    }
    Py_XDECREF(func);
    return result;
}

static void begin_with(TdRawFrame *frame, const TdAwaited *awaited)
{
    if (awaited->bound != NULL)
        td_frame_store(frame, awaited->bound_slot, awaited->bound);
    if (awaited->local != NULL)
        td_frame_store(frame, awaited->local_slot, awaited->local);
}

int td_frame_is_awaited(TdThread *thread, TdRawFrame *frame)
{
    if (thread->awaited.func == NULL || !td_frame_is_call_of(frame, thread->awaited.func))
        return 0;
    begin_with(frame, &thread->awaited);
    thread->awaited.func = NULL;
    td_hook_awaited();
    td_gc_resume(thread->awaited.gc);
    return 1;
}

PyObject *td_enter_entry(PyThreadState *tstate, TdRawFrame *frame, TdFrame *view, TdEntry *entry, PyObject *bound)
{
    TdAwaited given = {NULL, bound, entry->local, entry->bound_slot, entry->local_slot, 0};
    TD_COUNT(entry->hits);
    entry->ran_at = td_entries_made;
    if (given.bound_slot < 0)
        Py_CLEAR(given.bound);
    if (entry->code == view->code && given.bound == NULL) {
        Py_DECREF(entry);
        td_frame_close(view);
        return TD_RUN_IT;
    }
    Py_XINCREF(given.local);
    if (TD_LIKELY(td_frame_swap(tstate, frame, entry->code, entry->nargs))) {
        begin_with(frame, &given);
        Py_DECREF(entry);
        return TD_RUN_IT;
    }
    if (!td_frame_discardable(frame) || !td_hook_await()) {
        Py_XDECREF(given.bound);
        Py_XDECREF(given.local);
        Py_DECREF(entry);
        td_frame_close(view);
        return TD_RUN_IT;
    }
    PyCodeObject *code = (PyCodeObject *)Py_NewRef((PyObject *)entry->code);
    Py_DECREF(entry);
    PyObject *result = run_elsewhere(view, code, given);
    Py_DECREF(code);
    td_frame_close(view);
    td_frame_discard(tstate, frame);
    return result;
}

static void passed_clear(PyObject **passed, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; passed != NULL && i < count; i++)
        Py_DECREF(passed[i]);
    PyMem_Free(passed);
}

/* The arguments of a frame that has begun, as they were passed; owned. NULL with an error if some are gone. */
static PyObject **passed_to(const TdFrame *view)
{
    Py_ssize_t count = td_code_nargs(view->code);
    PyObject **passed = PyMem_Malloc((count + 1) * sizeof(PyObject *));
    if (passed == NULL)
        return (PyObject **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++)
        if ((passed[i] = td_frame_passed(view, i)) == NULL) {
            passed_clear(passed, i);
            PyErr_SetString(PyExc_RuntimeError, "the frame's arguments are gone");
            return NULL;
        }
    return passed;
}

/* The line on which the exception that is set left the outermost frame of its traceback; 0: nobody knows. */
static int line_left(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    int line = traceback != NULL ? ((PyTracebackObject *)traceback)->tb_lineno : 0;
    PyErr_Restore(type, error, traceback);
    return line;
}

PyObject *td_run_as_written(PyThreadState *tstate, PyCodeObject *code)
{
    TdRawFrame *frame = TD_CALLER(tstate);
    TdFrame view;
    Call call;
    if (!td_frame_is_plain(frame)) {
        PyErr_SetString(PyExc_RuntimeError, "only a function's own code runs it as it was written");
        return NULL;
    }
    if (td_check_compatible(code, TD_FRAME_CODE(frame)) < 0 || td_frame_open(frame, &view) < 0)
        return NULL;
    PyObject **passed = passed_to(&view), *func = passed != NULL ? function_with_code(&view, code) : NULL, *result = NULL;
    if (func != NULL && call_from_frame(&view, passed, &call) == 0) {
        td_frame_leave_out(tstate, frame);
        td_levels_add(tstate, 1);
        result = PyObject_Vectorcall(
            func, call.values + 1, (size_t)call.positional | PY_VECTORCALL_ARGUMENTS_OFFSET, call.names);
        td_levels_add(tstate, -1);
        TD_CALLER(tstate) = frame;
        if (result == NULL)
            td_frame_pass_by(frame, line_left());
        call_clear(&call);
    }
    Py_XDECREF(func);
    passed_clear(passed, td_code_nargs(view.code));
    td_frame_close(&view);
    return result;
}
