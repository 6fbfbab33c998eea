/* The frame as a callback sees it: a record of what was there when the call began, good for as long as it is asked. */
#include "hook.h"

typedef struct {
    PyObject_HEAD
    PyObject *code, *locals, *globals, *builtins, *func, *closure; /* all NULL once expired */
} FrameObject;

static PyTypeObject *frame_type = NULL;

PyObject *td_frame_locals(const TdFrame *frame)
{
    PyObject *names = PyObject_GetAttrString((PyObject *)frame->code, "co_varnames");
    PyObject *locals = names != NULL ? PyDict_New() : NULL;
    Py_ssize_t nargs = td_code_nargs(frame->code);
    for (Py_ssize_t i = 0; locals != NULL && i < nargs; i++)
        if (frame->localsplus[i] != NULL
            && PyDict_SetItem(locals, PyTuple_GET_ITEM(names, i), frame->localsplus[i]) < 0)
            Py_CLEAR(locals);
    Py_XDECREF(names);
    return locals;
}

static PyObject *closure_of(const TdFrame *frame)
{
    PyObject *cells = ((PyFunctionObject *)frame->func)->func_closure;
    PyObject *names = PyObject_GetAttrString((PyObject *)frame->code, "co_freevars");
    PyObject *closure = names != NULL ? PyDict_New() : NULL;
    for (Py_ssize_t i = 0; closure != NULL && cells != NULL && i < PyTuple_GET_SIZE(cells); i++)
        if (PyDict_SetItem(closure, PyTuple_GET_ITEM(names, i), PyTuple_GET_ITEM(cells, i)) < 0)
            Py_CLEAR(closure);
    Py_XDECREF(names);
    return closure;
}

PyObject *td_frame_object(const TdFrame *frame)
{
    PyObject *locals = td_frame_locals(frame), *closure = locals != NULL ? closure_of(frame) : NULL;
    FrameObject *self = closure != NULL ? (FrameObject *)frame_type->tp_alloc(frame_type, 0) : NULL;
    if (self == NULL) {
        Py_XDECREF(locals);
        Py_XDECREF(closure);
        return NULL;
    }
    self->code = Py_NewRef((PyObject *)frame->code);
    self->locals = locals;
    self->globals = Py_NewRef(frame->globals);
    self->builtins = Py_NewRef(frame->builtins);
    self->func = Py_NewRef(frame->func);
    self->closure = closure;
    return (PyObject *)self;
}

static int frame_clear(FrameObject *self)
{
    Py_CLEAR(self->code);
    Py_CLEAR(self->locals);
    Py_CLEAR(self->globals);
    Py_CLEAR(self->builtins);
    Py_CLEAR(self->func);
    Py_CLEAR(self->closure);
    return 0;
}

void td_frame_object_expire(PyObject *object)
{
    /* An error may be on its way up; what we let go of must not see it. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    frame_clear((FrameObject *)object);
    PyErr_Restore(type, value, traceback);
}

static int frame_traverse(FrameObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->code);
    Py_VISIT(self->locals);
    Py_VISIT(self->globals);
    Py_VISIT(self->builtins);
    Py_VISIT(self->func);
    Py_VISIT(self->closure);
    return 0;
}

static void frame_dealloc(FrameObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    frame_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *frame_get(FrameObject *self, void *offset)
{
    PyObject *value = *(PyObject **)((char *)self + (Py_ssize_t)(intptr_t)offset);
    if (value == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a frame can be read only while the callback that was given it runs");
        return NULL;
    }
    return Py_NewRef(value);
}

static PyObject *frame_repr(FrameObject *self)
{
    if (self->code == NULL)
        return PyUnicode_FromString("<frame that has begun>");
    return PyUnicode_FromFormat("<frame about to begin, %R>", self->code);
}

#define GET(name, field, doc) {name, (getter)frame_get, NULL, doc, (void *)offsetof(FrameObject, field)}

static PyGetSetDef frame_getset[] = {
    GET("f_code", code, "The code about to run."),
    GET("f_locals", locals, "The arguments by name, as they were passed."),
    GET("f_globals", globals, "The function's globals."),
    GET("f_builtins", builtins, "The function's builtins."),
    GET("f_func", func, "The function that is called."),
    GET("closure", closure, "The cells of the free variables, by name."),
    {NULL},
};

static PyType_Slot frame_slots[] = {
    {Py_tp_dealloc, frame_dealloc}, {Py_tp_traverse, frame_traverse}, {Py_tp_clear, frame_clear},
    {Py_tp_repr, frame_repr},       {Py_tp_getset, frame_getset},     {0, NULL},
};

static PyType_Spec frame_spec = {
    .name = "torchdynamo._native.Frame",
    .basicsize = sizeof(FrameObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = frame_slots,
};

int td_frame_init(PyObject *module)
{
    frame_type = (PyTypeObject *)PyType_FromSpec(&frame_spec);
    return frame_type == NULL ? -1 : PyModule_AddObjectRef(module, "Frame", (PyObject *)frame_type);
}
