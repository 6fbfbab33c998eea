/* The type Compiled: a callable with a callback on. What `optimize` and `compile` give their users. */
#include "guards.h"
#include "hook.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
    TdSetting setting;  /* callback is NULL when it is None: fn runs with everything off */
    PyObject *wrapped;  /* what __wrapped__ says: fn, unless somebody sets another */
    PyObject *direct;   /* a GuardProgram about fn: while it holds, calling fn calls its class's forward; or NULL */
    PyObject *way;      /* is given what is raised, to see to its traceback; with direct, what forward raises then; or NULL */
    PyObject *dict, *weakrefs;
} CompiledObject;

static PyTypeObject *compiled_type = NULL;
static PyObject *forward_name = NULL;

/* The function that calling a module comes to, where that is compiled and nothing on the way there does anything else.
 * What is not compiled is called as ever, so that it sees the frames it would see. A new reference, or NULL. */
static PyObject *direct_forward(CompiledObject *self)
{
    PyObject *bound, *module = self->fn;
    if (td_is_tracing() || td_program_run((TdProgram *)self->direct, &module, NULL, NULL, NULL, &bound) != 1)
        return NULL;
    PyObject *held, *forward = td_class_look_up(Py_TYPE(module), forward_name, &held);
    if (forward != NULL && held == NULL)
        Py_INCREF(forward);
    if (forward == NULL || !PyFunction_Check(forward)) {
        Py_XDECREF(forward);
        return NULL;
    }
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(forward);
    TdCodeState *state = td_state_of(code);
    if (state == NULL || state->entries == NULL || td_lines_are_watched(PyThreadState_Get(), code))
        Py_CLEAR(forward);
    return forward;
}

#define FEW 8

static PyObject *call_with_self(PyObject *fn, PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), count = nargs + (keys != NULL ? PyTuple_GET_SIZE(keys) : 0);
    if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
        PyObject **before = (PyObject **)args - 1, *kept = *before;
        *before = self;
        PyObject *result = PyObject_Vectorcall(fn, before, nargs + 1, keys);
        *before = kept;
        return result;
    }
    PyObject *few[FEW + 1], **all = count <= FEW ? few : PyMem_Malloc((count + 1) * sizeof(PyObject *));
    if (all == NULL)
        return PyErr_NoMemory();
    all[0] = self;
    if (count > 0)
        memcpy(all + 1, args, count * sizeof(PyObject *));
    PyObject *result = PyObject_Vectorcall(fn, all, nargs + 1, keys);
    if (all != few)
        PyMem_Free(all);
    return result;
}

void td_show_way(PyObject *way)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    Py_XDECREF(traceback);
    TdThread *thread = td_thread_get();
    if (thread != NULL) {
        TdActivation off = td_enter(thread, NULL, 0);
        PyObject *done = PyObject_CallOneArg(way, error);
        if (done == NULL)
            PyErr_WriteUnraisable(way);
        Py_XDECREF(done);
        td_leave(thread, off);
    }
    else
        PyErr_Clear();
    PyErr_Restore(type, error, PyException_GetTraceback(error));
}

static PyObject *call_fn(CompiledObject *self, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    PyObject *forward = self->direct != NULL ? direct_forward(self) : NULL;
    if (forward == NULL) {
        if (self->direct != NULL && PyErr_Occurred())
            return NULL;
        PyObject *result = PyObject_Vectorcall(self->fn, args, nargsf, keys);
        if (TD_UNLIKELY(result == NULL) && self->way != NULL && self->direct == NULL)
            td_show_way(self->way);
        return result;
    }
    PyObject *module = Py_NewRef(self->fn);
    PyObject *result = call_with_self(forward, module, args, nargsf, keys);
    Py_DECREF(forward);
    Py_DECREF(module);
    if (TD_UNLIKELY(result == NULL) && self->way != NULL)
        td_show_way(self->way);
    return result;
}

static PyObject *compiled_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    CompiledObject *self = (CompiledObject *)callable;
    TdThread *thread = td_thread_get();
    if (thread == NULL)
        return NULL;
    /* Run mode goes on inside a function that was decorated to be compiled: nothing new is compiled, as promised. */
    int run_mode = thread->callback == Py_False && self->setting.callback != NULL;
    if (run_mode || thread->callback == self->setting.callback)
        return call_fn(self, args, nargsf, keys);
    TdActivation ours = td_enter(thread, Py_XNewRef(self->setting.callback), self->setting.owner_id);
    PyObject *result = call_fn(self, args, nargsf, keys);
    td_leave(thread, ours);
    return result;
}

static PyObject *compiled_make(PyTypeObject *type, PyObject *fn, PyObject *direct, PyObject *way, TdSetting setting)
{
    CompiledObject *self = (CompiledObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(setting.callback);
        return NULL;
    }
    self->vectorcall = compiled_call;
    self->fn = Py_NewRef(fn);
    self->wrapped = Py_NewRef(fn);
    self->direct = Py_XNewRef(direct);
    self->way = Py_XNewRef(way);
    self->setting = setting;
    return (PyObject *)self;
}

static PyObject *compiled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "callback", "direct", "way", NULL};
    PyObject *fn, *callback, *direct = NULL, *way = NULL;
    TdSetting setting;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO|$O!O:Compiled", names, &fn, &callback, TdGuardProgram_Type, &direct, &way))
        return NULL;
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "%R is not callable", fn);
        return NULL;
    }
    if (direct != NULL && (((TdProgram *)direct)->n_slots != 1 || ((TdProgram *)direct)->n_bound != 0)) {
        PyErr_SetString(PyExc_ValueError, "direct guards speak of one local and give nothing");
        return NULL;
    }
    return td_setting_from(callback, &setting) < 0 ? NULL : compiled_make(type, fn, direct, way, setting);
}

/* As an attribute of a class it binds the way fn would: a function to a method, a module or a partial not at all. */
static PyObject *compiled_bind(CompiledObject *self, PyObject *object, PyObject *owner)
{
    if (PyFunction_Check(self->fn))
        return object == NULL || object == Py_None ? Py_NewRef((PyObject *)self) : PyMethod_New((PyObject *)self, object);
    descrgetfunc get = Py_TYPE(self->fn)->tp_descr_get;
    if (get == NULL)
        return Py_NewRef((PyObject *)self);
    PyObject *bound = get(self->fn, object, owner);
    if (bound == NULL)
        return NULL;
    if (bound == self->fn) { /* nothing was bound: a bound method has a slot that gives itself */
        Py_DECREF(bound);
        return Py_NewRef((PyObject *)self);
    }
    TdSetting setting = {Py_XNewRef(self->setting.callback), self->setting.owner_id};
    PyObject *result = compiled_make(Py_TYPE(self), bound, NULL, self->way, setting);
    Py_DECREF(bound);
    return result;
}

static int compiled_traverse(CompiledObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->fn);
    Py_VISIT(self->setting.callback);
    Py_VISIT(self->wrapped);
    Py_VISIT(self->direct);
    Py_VISIT(self->way);
    Py_VISIT(self->dict);
    return 0;
}

static int compiled_clear(CompiledObject *self)
{
    Py_XSETREF(self->fn, Py_NewRef((PyObject *)&PyType_Type)); /* a finalizer in the same cycle may call it */
    Py_CLEAR(self->setting.callback);
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->direct);
    Py_CLEAR(self->way);
    Py_CLEAR(self->dict);
    return 0;
}

static void compiled_dealloc(CompiledObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    compiled_clear(self);
    Py_CLEAR(self->fn);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *compiled_repr(CompiledObject *self) { return PyUnicode_FromFormat("<compiled %R>", self->fn); }

static PyObject *get_callback(CompiledObject *self, void *closure)
{
    return Py_NewRef(self->setting.callback != NULL ? self->setting.callback : Py_None);
}

/* A function is pickled, and copied, by its name; so are we, under the name that update_wrapper gave us. */
static PyObject *compiled_reduce(CompiledObject *self, PyObject *unused)
{
    PyObject *name = PyObject_GetAttrString((PyObject *)self, "__qualname__");
    if (name == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        name = PyObject_GetAttrString(self->fn, "__qualname__");
    }
    return name;
}

static PyMethodDef compiled_methods[] = {
    {"__reduce__", (PyCFunction)compiled_reduce, METH_NOARGS, NULL},
    {NULL},
};

static PyGetSetDef compiled_getset[] = {
    {"callback", (getter)get_callback, NULL, "What is asked while fn runs; None and False as in set_eval_frame."},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL},
    {NULL},
};

static PyMemberDef compiled_members[] = {
    {"fn", T_OBJECT, offsetof(CompiledObject, fn), READONLY, "What is called."},
    {"__wrapped__", T_OBJECT, offsetof(CompiledObject, wrapped), 0, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledObject, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(CompiledObject, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledObject, weakrefs), READONLY, NULL},
    {NULL},
};

PyDoc_STRVAR(compiled_doc,
             "Compiled(fn, callback, *, direct=None, way=None)\n--\n\n"
             "Calls fn with this thread's callback set, and puts the one before back. Binds as fn would.\n"
             "While the guards `direct` hold for fn as the only local, calling it is calling its class's forward. What fn,\n"
             "or forward then, raises is given to `way`, to see to its traceback.");

static PyType_Slot compiled_slots[] = {
    {Py_tp_doc, (void *)compiled_doc},      {Py_tp_new, compiled_new},          {Py_tp_dealloc, compiled_dealloc},
    {Py_tp_traverse, compiled_traverse},    {Py_tp_clear, compiled_clear},      {Py_tp_repr, compiled_repr},
    {Py_tp_descr_get, compiled_bind},       {Py_tp_methods, compiled_methods},  {Py_tp_getset, compiled_getset},
    {Py_tp_members, compiled_members},      {Py_tp_call, PyVectorcall_Call},    {0, NULL},
};

static PyType_Spec compiled_spec = {
    .name = "torchdynamo._native.Compiled",
    .basicsize = sizeof(CompiledObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = compiled_slots,
};

int td_compiled_init(PyObject *module)
{
    forward_name = PyUnicode_InternFromString("forward");
    compiled_type = (PyTypeObject *)PyType_FromSpec(&compiled_spec);
    return compiled_type == NULL || forward_name == NULL ? -1 : PyModule_AddObjectRef(module, "Compiled", (PyObject *)compiled_type);
}
