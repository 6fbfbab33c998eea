/* The type Compiled: a callable with a callback on. What `optimize` and `compile` give their users. */
#include "hook.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
    TdSetting setting;  /* callback is NULL when it is None: fn runs with everything off */
    PyObject *wrapped;  /* what __wrapped__ says: fn, unless somebody sets another */
    PyObject *dict, *weakrefs;
} CompiledObject;

static PyTypeObject *compiled_type = NULL;

static PyObject *compiled_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    CompiledObject *self = (CompiledObject *)callable;
    TdThread *thread = td_thread_get();
    if (thread == NULL)
        return NULL;
    /* Run mode goes on inside a function that was decorated to be compiled: nothing new is compiled, as promised. */
    int run_mode = thread->callback == Py_False && self->setting.callback != NULL;
    if (run_mode || thread->callback == self->setting.callback)
        return PyObject_Vectorcall(self->fn, args, nargsf, keys);
    TdSetting setting = {Py_XNewRef(self->setting.callback), self->setting.owner_id};
    TdSetting prior = td_thread_swap(thread, setting);
    PyObject *result = PyObject_Vectorcall(self->fn, args, nargsf, keys);
    TdSetting stray = td_thread_swap(thread, prior);
    Py_XDECREF(stray.callback);
    return result;
}

static PyObject *compiled_make(PyTypeObject *type, PyObject *fn, TdSetting setting)
{
    CompiledObject *self = (CompiledObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(setting.callback);
        return NULL;
    }
    self->vectorcall = compiled_call;
    self->fn = Py_NewRef(fn);
    self->wrapped = Py_NewRef(fn);
    self->setting = setting;
    return (PyObject *)self;
}

static PyObject *compiled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "callback", NULL};
    PyObject *fn, *callback;
    TdSetting setting;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Compiled", names, &fn, &callback))
        return NULL;
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "%R is not callable", fn);
        return NULL;
    }
    return td_setting_from(callback, &setting) < 0 ? NULL : compiled_make(type, fn, setting);
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
    TdSetting setting = {Py_XNewRef(self->setting.callback), self->setting.owner_id};
    PyObject *result = compiled_make(Py_TYPE(self), bound, setting);
    Py_DECREF(bound);
    return result;
}

static int compiled_traverse(CompiledObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->fn);
    Py_VISIT(self->setting.callback);
    Py_VISIT(self->wrapped);
    Py_VISIT(self->dict);
    return 0;
}

static int compiled_clear(CompiledObject *self)
{
    Py_XSETREF(self->fn, Py_NewRef((PyObject *)&PyType_Type)); /* a finalizer in the same cycle may call it */
    Py_CLEAR(self->setting.callback);
    Py_CLEAR(self->wrapped);
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
             "Compiled(fn, callback)\n--\n\n"
             "Calls fn with this thread's callback set, and puts the one before back. Binds as fn would.");

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
    compiled_type = (PyTypeObject *)PyType_FromSpec(&compiled_spec);
    return compiled_type == NULL ? -1 : PyModule_AddObjectRef(module, "Compiled", (PyObject *)compiled_type);
}
