/* What shows in a traceback of calls that were captured: the frame as it was written, and frames that never ran. */
#include "hook.h"

#include <structmember.h>

/* ---- AsWritten: what an entry's code calls to have its function run as it was written ------------------------------ */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *code; /* a weak reference: the code owns the entry, which owns this */
} AsWrittenObject;

static PyObject *as_written_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    AsWrittenObject *self = (AsWrittenObject *)callable;
    if (PyVectorcall_NARGS(nargsf) != 0 || keys != NULL) {
        PyErr_SetString(PyExc_TypeError, "AsWritten objects are called without arguments");
        return NULL;
    }
    TdThread *thread = td_thread_get();
    PyObject *code = thread != NULL ? td_weak_get(self->code) : NULL;
    if (code == NULL)
        return NULL;
    if (code == Py_None) {
        Py_DECREF(code);
        PyErr_SetString(PyExc_ReferenceError, "the function's code is gone");
        return NULL;
    }
    TdActivation off = td_enter(thread, NULL, 0);
    PyObject *result = td_run_as_written(PyThreadState_Get(), (PyCodeObject *)code);
    td_leave(thread, off);
    Py_DECREF(code);
    return result;
}

static PyObject *as_written_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", NULL};
    PyObject *code;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:AsWritten", names, &PyCode_Type, &code))
        return NULL;
    AsWrittenObject *self = (AsWrittenObject *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = as_written_call;
    self->code = PyWeakref_NewRef(code, NULL);
    if (self->code == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void as_written_dealloc(AsWrittenObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->code);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef as_written_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(AsWrittenObject, vectorcall), READONLY, NULL},
    {NULL},
};

PyDoc_STRVAR(as_written_doc,
             "AsWritten(code)\n--\n\n"
             "Called by an entry's code, runs the function from its start with `code`, its own, which is held weakly.\n"
             "Nothing is compiled meanwhile, and of the two frames only that is shown.");

static PyType_Slot as_written_slots[] = {
    {Py_tp_doc, (void *)as_written_doc},       {Py_tp_new, as_written_new},      {Py_tp_dealloc, as_written_dealloc},
    {Py_tp_members, as_written_members},       {Py_tp_call, PyVectorcall_Call},  {0, NULL},
};

static PyType_Spec as_written_spec = {
    .name = "torchdynamo._native.AsWritten",
    .basicsize = sizeof(AsWrittenObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = as_written_slots,
};

/* ---- Frames for tracebacks ----------------------------------------------------------------------------------------- */

static PyObject *frame_at(PyObject *module, PyObject *args)
{
    PyObject *code, *globals, *back = Py_None;
    Py_ssize_t lasti;
    if (!PyArg_ParseTuple(args, "O!O!n|O:frame_at", &PyCode_Type, &code, &PyDict_Type, &globals, &lasti, &back))
        return NULL;
    Py_ssize_t instruction = lasti / (Py_ssize_t)sizeof(_Py_CODEUNIT);
    if (lasti < 0 || instruction >= td_code_instructions((PyCodeObject *)code)) {
        PyErr_Format(PyExc_IndexError, "%R has no instruction at %zd", code, lasti);
        return NULL;
    }
    if (back != Py_None && !PyFrame_Check(back)) {
        PyErr_Format(PyExc_TypeError, "%R is no frame", back);
        return NULL;
    }
    PyFrameObject *frame = PyFrame_New(PyThreadState_Get(), (PyCodeObject *)code, globals, NULL);
    if (frame != NULL && td_frame_stand(frame, instruction, back != Py_None ? back : NULL) < 0)
        Py_CLEAR(frame);
    return (PyObject *)frame;
}

#if !TD_FRAMES_ARE_SLOTS
void td_frame_pass_by(TdRawFrame *frame, int line)
{
    TdThread *thread = td_thread;
    if (thread == NULL)
        return;
    thread->passed_by = frame;
    thread->below = PyThreadState_Get()->curexc_traceback;
}

/* Does nothing where another error than that leaves the frame. */
void td_frame_ended(PyThreadState *tstate, TdRawFrame *frame)
{
    TdThread *thread = td_thread;
    if (thread->passed_by != frame)
        return;
    thread->passed_by = NULL;
    PyTracebackObject *first = (PyTracebackObject *)tstate->curexc_traceback;
    if (first == NULL || first->tb_frame != frame || first->tb_next == NULL || (void *)first->tb_next != thread->below)
        return;
    tstate->curexc_traceback = Py_NewRef((PyObject *)first->tb_next);
    Py_DECREF(first);
}
#endif

static PyObject *leave_out_first(PyObject *module, PyObject *error)
{
    if (!PyExceptionInstance_Check(error)) {
        PyErr_Format(PyExc_TypeError, "%R is no exception", error);
        return NULL;
    }
    PyObject *traceback = PyException_GetTraceback(error), *next = NULL;
    if (traceback != NULL)
        next = (PyObject *)((PyTracebackObject *)traceback)->tb_next;
    int failed = next != NULL && PyException_SetTraceback(error, next) < 0;
    Py_XDECREF(traceback);
    return failed ? NULL : Py_NewRef(error);
}

static PyMethodDef shown_functions[] = {
    {"leave_out_first", leave_out_first, METH_O,
     "leave_out_first(error, /)\n--\n\nTake the outermost frame out of an exception's traceback, if there are others; "
     "return the exception."},
    {"frame_at", frame_at, METH_VARARGS,
     "frame_at(code, globals, lasti, back=None, /)\n--\n\nA frame of the code that stands at this instruction and has no "
     "variables, called by `back`. It never runs: it is for tracebacks."},
    {"with_globals", td_with_globals, METH_VARARGS,
     "with_globals(function, globals, /)\n--\n\nA function of the same code and cells."},
    {NULL},
};

int td_shown_init(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&as_written_spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "AsWritten", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : PyModule_AddFunctions(module, shown_functions);
}
