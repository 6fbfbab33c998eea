/* The type GuardProgram: what Python sees of a guard program, and how the hook asks it. */
#include "guards.h"

PyTypeObject *TdGuardProgram_Type = NULL;

static int slots_of(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0)
           + ((code->co_flags & CO_VARKEYWORDS) != 0);
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "nodes", "checks", "bound", NULL};
    PyObject *code, *nodes, *checks, *bound;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!:GuardProgram", names, &PyCode_Type, &code, &PyTuple_Type,
                                     &nodes, &PyTuple_Type, &checks, &PyTuple_Type, &bound))
        return NULL;
    TdProgram *program = (TdProgram *)type->tp_alloc(type, 0);
    if (program == NULL)
        return NULL;
    program->varnames = PyObject_GetAttrString(code, "co_varnames");
    program->freevars = PyObject_GetAttrString(code, "co_freevars");
    program->n_slots = slots_of((PyCodeObject *)code);
    program->failed_node = program->failed_check = -1;
    program->patience = 1;
    program->guards = Py_NewRef(Py_None);
    program->spec = PyTuple_Pack(3, nodes, checks, bound);
    if (program->varnames == NULL || program->freevars == NULL || program->spec == NULL
        || td_program_build(program, nodes, checks, bound) < 0) {
        Py_DECREF(program);
        return NULL;
    }
    return (PyObject *)program;
}

static int program_traverse(TdProgram *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->spec);
    Py_VISIT(self->guards);
    int stop = td_steps_visit(&self->steps, visit, arg);
    return stop ? stop : td_steps_visit(&self->late, visit, arg);
}

/* Steps are freed with the program only: a check may be under way. */
static int program_clear(TdProgram *self)
{
    Py_CLEAR(self->guards);
    return 0;
}

static void program_dealloc(TdProgram *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    program_clear(self);
    td_steps_clear(&self->steps);
    td_steps_clear(&self->late);
    td_placed_forget(self);
    td_disarm(self);
    td_outside_free(self->outside);
    PyMem_Free(self->benign);
    PyMem_Free(self->reject);
    PyMem_Free(self->is_constant);
    PyMem_Free(self->values);
    PyMem_Free(self->bound);
    Py_CLEAR(self->spec);
    Py_CLEAR(self->varnames);
    Py_CLEAR(self->freevars);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- Asked from Python ------------------------------------------------------------------------------------------- */

static PyObject *closure_from(TdProgram *self, PyObject *cells)
{
    PyObject *names = self->freevars;
    PyObject *closure = PyTuple_New(PyTuple_GET_SIZE(names));
    for (Py_ssize_t i = 0; closure != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *cell = cells == Py_None ? NULL : PyObject_GetItem(cells, PyTuple_GET_ITEM(names, i));
        if (cell == NULL) {
            PyErr_Clear();
            cell = Py_NewRef(Py_None);
        }
        PyTuple_SET_ITEM(closure, i, cell);
    }
    return closure;
}

/* Owned, as a frame owns its own: the dict may lose them meanwhile. */
static PyObject **slots_from(TdProgram *self, PyObject *locals)
{
    PyObject **slots = PyMem_Calloc(self->n_slots + 1, sizeof(PyObject *));
    for (int i = 0; slots != NULL && i < self->n_slots; i++)
        slots[i] = td_dict_get(locals, PyTuple_GET_ITEM(self->varnames, i));
    if (slots == NULL)
        PyErr_NoMemory();
    return slots;
}

static void slots_free(TdProgram *self, PyObject **slots)
{
    for (int i = 0; slots != NULL && i < self->n_slots; i++)
        Py_XDECREF(slots[i]);
    PyMem_Free(slots);
}

/* fetch(locals, globals, builtins, closure={}) -> the bound tuple, or None: as the hook would ask it. */
static PyObject *program_fetch(TdProgram *self, PyObject *args)
{
    PyObject *locals, *globals, *builtins, *cells = Py_None, *bound = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!|O:fetch", &PyDict_Type, &locals, &PyDict_Type, &globals, &PyDict_Type,
                          &builtins, &cells))
        return NULL;
    PyObject *closure = closure_from(self, cells);
    PyObject **slots = closure == NULL ? NULL : slots_from(self, locals);
    int answer = slots == NULL ? -1 : td_program_run(self, slots, globals, builtins, closure, &bound);
    slots_free(self, slots);
    Py_XDECREF(closure);
    if (answer < 0)
        return NULL;
    if (answer == 0)
        Py_RETURN_NONE;
    return bound != NULL ? bound : PyTuple_New(0);
}

static PyObject *program_check(TdProgram *self, PyObject *args)
{
    PyObject *bound = program_fetch(self, args);
    if (bound == NULL)
        return NULL;
    int holds = bound != Py_None;
    Py_DECREF(bound);
    return PyBool_FromLong(holds);
}

/* time(rounds, locals, globals, builtins, closure={}) -> seconds for that many checks: for benchmarks. */
static PyObject *program_repeat(TdProgram *self, PyObject *args)
{
    Py_ssize_t rounds, held = 0;
    PyObject *locals, *globals, *builtins, *cells = Py_None;
    if (!PyArg_ParseTuple(args, "nO!O!O!|O:repeat", &rounds, &PyDict_Type, &locals, &PyDict_Type, &globals,
                          &PyDict_Type, &builtins, &cells))
        return NULL;
    PyObject *closure = closure_from(self, cells);
    PyObject **slots = closure == NULL ? NULL : slots_from(self, locals);
    for (Py_ssize_t i = 0; slots != NULL && i < rounds; i++) {
        PyObject *bound = NULL;
        held += td_program_run(self, slots, globals, builtins, closure, &bound) == 1;
        Py_XDECREF(bound);
    }
    slots_free(self, slots);
    Py_XDECREF(closure);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(held);
}

static PyObject *program_describe(TdProgram *self, PyObject *ignored) { return Py_NewRef(self->spec); }

typedef struct {
    TdProgram *program;
    int *costs;
} Costs;

static int find_costs(void *argument)
{
    td_costs(((Costs *)argument)->program, ((Costs *)argument)->costs);
    return 0;
}

/* costs() -> for each check what a hit pays for it: see td_costs. */
static PyObject *program_costs(TdProgram *self, PyObject *ignored)
{
    Py_ssize_t count = PyTuple_GET_SIZE(PyTuple_GET_ITEM(self->spec, 1));
    int *costs = PyMem_Calloc(count + 1, sizeof(int));
    PyObject *answer = costs == NULL ? PyErr_NoMemory() : PyTuple_New(count);
    Costs wanted = {self, costs};
    if (answer != NULL)
        td_alone(find_costs, &wanted);
    for (Py_ssize_t i = 0; answer != NULL && i < count; i++) {
        PyObject *cost = PyLong_FromLong(costs[i]);
        if (cost == NULL)
            Py_CLEAR(answer);
        else
            PyTuple_SET_ITEM(answer, i, cost);
    }
    PyMem_Free(costs);
    return answer;
}

static PyObject *program_failed(TdProgram *self, void *closure)
{
    return Py_BuildValue("(ii)", self->failed_node, self->failed_check);
}

static PyObject *program_get_guards(TdProgram *self, void *closure)
{
    PyObject *guards;
    TD_SHARED_BEGIN
    guards = Py_NewRef(self->guards != NULL ? self->guards : Py_None);
    TD_SHARED_END
    return guards;
}

static int program_set_guards(TdProgram *self, PyObject *value, void *closure)
{
    PyObject *old;
    TD_SHARED_BEGIN
    old = self->guards;
    self->guards = Py_XNewRef(value);
    TD_SHARED_END
    Py_XDECREF(old);
    return 0;
}

static PyMethodDef program_methods[] = {
    {"check", (PyCFunction)program_check, METH_VARARGS,
     "check(locals, globals, builtins, closure={}) -> bool: do all guards hold for such a frame?"},
    {"fetch", (PyCFunction)program_fetch, METH_VARARGS,
     "fetch(locals, globals, builtins, closure={}) -> the bound tuple, or None where a guard fails."},
    {"repeat", (PyCFunction)program_repeat, METH_VARARGS,
     "repeat(rounds, locals, globals, builtins, closure={}) -> how many of the checks held; for timing."},
    {"describe", (PyCFunction)program_describe, METH_NOARGS, "describe() -> (nodes, checks, bound) as it was made of."},
    {"costs", (PyCFunction)program_costs, METH_NOARGS,
     "costs() -> for each check what a hit pays: so many words compared; 0: others prove it; -1: it is run; -2: a tensor's metadata."},
    {NULL},
};

static PyGetSetDef program_attributes[] = {
    {"guards", (getter)program_get_guards, (setter)program_set_guards, "What Python wants to keep with it.", NULL},
    {"failed", (getter)program_failed, NULL, "(node, check) where the last check that failed did; check -1: no such object.",
     NULL},
    {NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_new, program_new},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_traverse, program_traverse},
    {Py_tp_clear, program_clear},
    {Py_tp_methods, program_methods},
    {Py_tp_getset, program_attributes},
    {Py_tp_doc, "GuardProgram(code, nodes, checks, bound): the guards of one entry, checked natively."},
    {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "torchdynamo._native.GuardProgram",
    .basicsize = sizeof(TdProgram),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = program_slots,
};

/* ---- Asked by the hook ------------------------------------------------------------------------------------------- */

int td_program_check(PyObject *program, const TdFrame *frame, PyObject **bound)
{
    PyObject *closure = frame->func == NULL ? NULL : PyFunction_GET_CLOSURE(frame->func);
    return td_program_run((TdProgram *)program, frame->localsplus, frame->globals, frame->builtins, closure, bound);
}

int td_program_asks(PyObject *program) { return ((TdProgram *)program)->outside != NULL; }

int td_guards_init(PyObject *module)
{
    PyObject *collections = PyImport_ImportModule("collections");
    if (collections == NULL)
        return -1;
    td_deque_type = (PyTypeObject *)PyObject_GetAttrString(collections, "deque");
    Py_DECREF(collections);
    if (td_deque_type == NULL)
        return -1;
    PyObject *thread = PyImport_ImportModule("_thread");
    if (thread == NULL)
        return -1;
    td_local_type = (PyTypeObject *)PyObject_GetAttrString(thread, "_local");
    Py_DECREF(thread);
    if (td_local_type == NULL)
        return -1;
    if (td_caches_init(module) < 0 || td_keys_init(module) < 0 || td_attrs_init(module) < 0)
        return -1;
    static const char *const parts[3] = {"start", "stop", "step"};
    for (int i = 0; i < 3; i++)
        if ((td_range_parts[i] = PyUnicode_InternFromString(parts[i])) == NULL)
            return -1;
    TdGuardProgram_Type = (PyTypeObject *)PyType_FromSpec(&program_spec);
    if (TdGuardProgram_Type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "GuardProgram", (PyObject *)TdGuardProgram_Type);
}
