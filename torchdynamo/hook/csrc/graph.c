/* The type CompiledGraph: what a backend made, as the replacement code calls it.
 *
 * While it runs nothing is ours to look at, so the thread's callback is off, and the hook is out if nobody else needs
 * it: then the interpreter calls Python functions its quick way. */
#include "hook.h"
#include "tensor.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn, *name, *on_error; /* on_error may be NULL */
    PyObject *written;              /* a weak reference to the code of the frame that calls, or NULL */
    PyObject *label;                /* of its range in a profile; NULL: the name */
    PyObject *weakrefs;
    char splat;
} GraphObject;

#define FEW 64

static _Thread_local int in_run_mode_now; /* the graph that runs in this thread was called in run mode */

/* The arguments with the tuple in last place spread out. `few` serves unless there are more. */
static PyObject **spread(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t nkeys, Py_ssize_t *total, PyObject **few)
{
    PyObject *tail = args[nargs - 1];
    Py_ssize_t size = PyTuple_GET_SIZE(tail);
    *total = nargs - 1 + size;
    PyObject **flat = few;
    if (1 + *total + nkeys > FEW && (flat = PyMem_Malloc((1 + *total + nkeys) * sizeof(PyObject *))) == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(flat + 1, args, (nargs - 1) * sizeof(PyObject *));
    memcpy(flat + nargs, ((PyTupleObject *)tail)->ob_item, size * sizeof(PyObject *));
    memcpy(flat + 1 + *total, args + nargs, nkeys * sizeof(PyObject *));
    return flat;
}

/* Raise an error, whose traceback begins with the frame that is calling: that is not noted once more. Steals the error. */
static PyObject *raise_as_is(PyThreadState *tstate, PyObject *error)
{
    TdRawFrame *caller = TD_CALLER(tstate);
    PyObject *traceback = PyException_GetTraceback(error);
    int line = traceback != NULL ? ((PyTracebackObject *)traceback)->tb_lineno : 0;
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, traceback);
    if (traceback != NULL && td_frame_is_plain(caller))
        td_frame_pass_by(caller, line);
    return NULL;
}

/* Run the caller as it was written, and it will raise. If it does not, on_error is asked once more what to raise. */
static PyObject *run_caller(GraphObject *self, PyObject *error)
{
    PyObject *code = td_weak_get(self->written);
    if (code != Py_None) {
        PyObject *result = td_run_as_written(PyThreadState_Get(), (PyCodeObject *)code);
        if (result == NULL) {
            Py_DECREF(code);
            return NULL;
        }
        Py_DECREF(result);
    }
    Py_DECREF(code);
    return PyObject_CallFunctionObjArgs(self->on_error, error, Py_None, NULL);
}

/* fn raised: let on_error have the exception and the arguments, and do as it says. */
static PyObject *recover(GraphObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *tuple = PyTuple_New(nargs), *result = NULL;
    for (Py_ssize_t i = 0; tuple != NULL && i < nargs; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
    if (tuple != NULL)
        result = PyObject_CallFunctionObjArgs(self->on_error, error, tuple, NULL);
    Py_XDECREF(tuple);
    Py_CLEAR(traceback);
    if (result == Py_None && self->written != NULL) {
        Py_DECREF(result);
        result = run_caller(self, error);
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    return result != NULL && PyExceptionInstance_Check(result) ? raise_as_is(PyThreadState_Get(), result) : result;
}

static PyObject *call_fn(GraphObject *self, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    PyObject *fn; /* it may put another in its place */
    TD_SHARED_BEGIN
    fn = Py_NewRef(self->fn);
    TD_SHARED_END
    PyObject *result = PyObject_Vectorcall(fn, args, nargsf, keys);
    Py_DECREF(fn);
    if (TD_UNLIKELY(result == NULL) && self->on_error != NULL)
        return recover(self, args, PyVectorcall_NARGS(nargsf));
    return result;
}

static PyObject *call_spread(GraphObject *self, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), nkeys = keys != NULL ? PyTuple_GET_SIZE(keys) : 0, total;
    if (nargs == 0 || !PyTuple_Check(args[nargs - 1])) {
        PyErr_Format(PyExc_TypeError, "%U must be called with a tuple in last place", self->name);
        return NULL;
    }
    PyObject *few[FEW], *tail = Py_NewRef(args[nargs - 1]), *result = NULL;
    PyObject **flat = spread(args, nargs, nkeys, &total, few);
    if (flat != NULL) {
        td_placed_spread(tail, flat + nargs);
        result = call_fn(self, flat + 1, (size_t)total | PY_VECTORCALL_ARGUMENTS_OFFSET, keys);
        td_placed_spread(NULL, NULL);
    }
    if (flat != few)
        PyMem_Free(flat);
    Py_DECREF(tail);
    return result;
}

static PyObject *watcher; /* told of each call: (label, start, end), in nanoseconds; NULL: nobody watches */

/* Tell the watcher, whose errors are reported and not raised: the program has no part in them. */
static void tell_watcher(GraphObject *self, int64_t started)
{
    PyObject *whom, *type, *error, *traceback;
    TD_SHARED_BEGIN
    whom = Py_XNewRef(watcher);
    TD_SHARED_END
    if (whom == NULL)
        return;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *done = PyObject_CallFunction(whom, "OLL", self->label != NULL ? self->label : self->name, (long long)started, (long long)td_nanoseconds());
    if (done == NULL)
        PyErr_WriteUnraisable(whom);
    Py_XDECREF(done);
    Py_DECREF(whom);
    PyErr_Restore(type, error, traceback);
}

/* Call it as somebody looks: a profiler of torch, or the watcher. */
static PyObject *call_seen(GraphObject *self, vectorcallfunc call, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    const char *label = td_is_profiled() ? PyUnicode_AsUTF8(self->label != NULL ? self->label : self->name) : NULL;
    if (label == NULL)
        PyErr_Clear();
    void *range = label != NULL ? td_range_begin(label) : NULL;
    int64_t started = td_nanoseconds();
    PyObject *result = call((PyObject *)self, args, nargsf, keys);
    tell_watcher(self, started);
    if (range != NULL)
        td_range_end(range);
    return result;
}

static PyObject *graph_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *keys)
{
    GraphObject *self = (GraphObject *)callable;
    vectorcallfunc call = self->splat ? (vectorcallfunc)(void (*)(void))call_spread : (vectorcallfunc)(void (*)(void))call_fn;
    TdThread *thread = td_thread;
    int seen = watcher != NULL || td_is_profiled();
    if (thread == NULL || thread->callback == NULL)
        return seen ? call_seen(self, call, args, nargsf, keys) : call(callable, args, nargsf, keys);
    PyThreadState *tstate = PyThreadState_Get();
    int outer = in_run_mode_now;
    in_run_mode_now = thread->callback == Py_False;
    TdActivation off = td_enter(thread, NULL, 0);
    int levels = td_levels_lend(tstate, thread);
    PyObject *result = TD_UNLIKELY(seen) ? call_seen(self, call, args, nargsf, keys) : call(callable, args, nargsf, keys);
    td_levels_give_back(tstate, thread, levels);
    td_leave(thread, off);
    in_run_mode_now = outer;
    return result;
}

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "name", "splat", "on_error", "written", "label", NULL};
    PyObject *fn, *name, *on_error = Py_None, *written = Py_None, *label = NULL;
    int splat = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OU|$pOOU:CompiledGraph", names, &fn, &name, &splat, &on_error, &written, &label))
        return NULL;
    if (written != Py_None && !PyCode_Check(written)) {
        PyErr_Format(PyExc_TypeError, "%R is no code object", written);
        return NULL;
    }
    if (!PyCallable_Check(fn) || (on_error != Py_None && !PyCallable_Check(on_error))) {
        PyErr_Format(PyExc_TypeError, "%R is not callable", PyCallable_Check(fn) ? on_error : fn);
        return NULL;
    }
    GraphObject *self = (GraphObject *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = graph_call;
    self->fn = Py_NewRef(fn);
    self->name = Py_NewRef(name);
    self->on_error = on_error != Py_None ? Py_NewRef(on_error) : NULL;
    self->label = Py_XNewRef(label);
    self->splat = (char)splat;
    self->written = written != Py_None ? PyWeakref_NewRef(written, NULL) : NULL;
    if (written != Py_None && self->written == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int graph_traverse(GraphObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->fn);
    Py_VISIT(self->on_error);
    return 0;
}

static int graph_clear(GraphObject *self)
{
    /* Code that outlives this in a cycle may call it still: fn must stay a callable. */
    Py_XSETREF(self->fn, Py_NewRef((PyObject *)&PyType_Type));
    Py_CLEAR(self->on_error);
    return 0;
}

static void graph_dealloc(GraphObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    Py_CLEAR(self->fn);
    Py_CLEAR(self->on_error);
    Py_CLEAR(self->written);
    Py_CLEAR(self->label);
    Py_CLEAR(self->name);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *graph_repr(GraphObject *self) { return Py_NewRef(self->name); }

static PyObject *graph_fn(GraphObject *self, void *closure)
{
    PyObject *fn;
    TD_SHARED_BEGIN
    fn = Py_NewRef(self->fn);
    TD_SHARED_END
    return fn;
}

static int graph_set_fn(GraphObject *self, PyObject *fn, void *closure)
{
    if (fn == NULL || !PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "%R is not callable", fn != NULL ? fn : Py_None);
        return -1;
    }
    PyObject *prior;
    TD_SHARED_BEGIN
    prior = self->fn;
    self->fn = Py_NewRef(fn);
    TD_SHARED_END
    Py_XDECREF(prior);
    return 0;
}

static PyGetSetDef graph_getset[] = {
    {"fn", (getter)graph_fn, (setter)graph_set_fn, "What the backend made. Calls that have begun go on with the one before.",
     NULL},
    {NULL},
};

static PyMemberDef graph_members[] = {
    {"on_error", T_OBJECT, offsetof(GraphObject, on_error), READONLY, "Asked for the result when fn raises."},
    {"splat", T_BOOL, offsetof(GraphObject, splat), READONLY, "Whether the last argument is a tuple to spread."},
    {"__name__", T_OBJECT, offsetof(GraphObject, name), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(GraphObject, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GraphObject, weakrefs), READONLY, NULL},
    {NULL},
};

PyDoc_STRVAR(graph_doc,
             "CompiledGraph(fn, name, *, splat=False, on_error=None, written=None, label=name)\n--\n\n"
             "Calls fn with the thread's callback off. With splat the last argument is a tuple, and is spread out.\n"
             "If fn raises, the result is on_error(exception, arguments). An exception is raised as it is: its traceback\n"
             "begins with the caller. None, with `written`, the caller's own code, which is held weakly: the caller runs\n"
             "from its start as it was written, to raise its own; if it does not, on_error(exception, None) is raised.\n"
             "The label names its range in a profile.");

static PyType_Slot graph_slots[] = {
    {Py_tp_doc, (void *)graph_doc},   {Py_tp_new, graph_new},         {Py_tp_dealloc, graph_dealloc},
    {Py_tp_traverse, graph_traverse}, {Py_tp_clear, graph_clear},     {Py_tp_repr, graph_repr},
    {Py_tp_members, graph_members},   {Py_tp_getset, graph_getset},   {Py_tp_call, PyVectorcall_Call},
    {0, NULL},
};

static PyType_Spec graph_spec = {
    .name = "torchdynamo._native.CompiledGraph",
    .basicsize = sizeof(GraphObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = graph_slots,
};

static PyObject *in_run_mode(PyObject *module, PyObject *ignored) { return PyBool_FromLong(in_run_mode_now); }

static PyObject *watch_graphs(PyObject *module, PyObject *listener)
{
    if (listener != Py_None && !PyCallable_Check(listener)) {
        PyErr_Format(PyExc_TypeError, "%R is not callable", listener);
        return NULL;
    }
    PyObject *prior;
    TD_SHARED_BEGIN
    prior = watcher;
    watcher = listener != Py_None ? Py_NewRef(listener) : NULL;
    TD_SHARED_END
    return prior != NULL ? prior : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"watch_graphs", watch_graphs, METH_O,
     "watch_graphs(listener | None) -> the listener before: called with (label, start, end) after each call of a compiled\n"
     "graph, in any thread; times are nanoseconds of time.perf_counter_ns()."},
    {"in_run_mode", in_run_mode, METH_NOARGS,
     "in_run_mode() -> bool: the graph that runs in this thread was called in run mode, in which nothing is compiled."},
    {NULL},
};

int td_graph_init(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&graph_spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "CompiledGraph", type) < 0;
    failed = failed || PyModule_AddFunctions(module, functions) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
