/* The type Entry: code that may run in place of another, and the guards under which it may. */
#include "hook.h"

#include <structmember.h>

PyTypeObject *TdEntry_Type = NULL;
extern PyMethodDef td_compatible_functions[];

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "guards", "owner_id", "info", "local", NULL};
    PyObject *code, *check, *info = NULL, *local = NULL;
    const char *name = NULL;
    long long owner_id = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O|$LO(sO):Entry", names, &PyCode_Type, &code, &check, &owner_id, &info, &name, &local))
        return NULL;
    int native = TdGuardProgram_Type != NULL && PyObject_TypeCheck(check, TdGuardProgram_Type);
    if (!native && !PyCallable_Check(check)) {
        PyErr_Format(PyExc_TypeError, "guards are a GuardProgram or a callable check_fn(f_locals), not %R", check);
        return NULL;
    }
    Py_ssize_t slot, local_slot = -1;
    if (td_local_slot((PyCodeObject *)code, "__bound", &slot) < 0
        || (local != NULL && td_local_slot((PyCodeObject *)code, name, &local_slot) < 0))
        return NULL;
    if (local != NULL && local_slot < 0) {
        PyErr_Format(PyExc_ValueError, "%R has no local %s", code, name);
        return NULL;
    }
    TdEntry *self = (TdEntry *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->code = (PyCodeObject *)Py_NewRef(code);
    self->check = Py_NewRef(check);
    self->info = Py_XNewRef(info);
    self->owner_id = owner_id;
    self->bound_slot = slot;
    self->local = Py_XNewRef(local);
    self->local_slot = local_slot;
    self->nargs = td_code_nargs((PyCodeObject *)code);
    self->native = (char)native;
    return (PyObject *)self;
}

static int entry_traverse(TdEntry *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->code);
    Py_VISIT(self->check);
    Py_VISIT(self->info);
    Py_VISIT(self->local);
    return 0;
}

static int entry_clear(TdEntry *self)
{
    Py_CLEAR(self->info);
    return 0;
}

static void entry_dealloc(TdEntry *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    Py_CLEAR(self->code);
    Py_CLEAR(self->check);
    Py_CLEAR(self->local);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *entry_repr(TdEntry *self)
{
    return PyUnicode_FromFormat("<%s for %U, owner %lld, %lld hits>", strrchr(Py_TYPE(self)->tp_name, '.')
                                    ? strrchr(Py_TYPE(self)->tp_name, '.') + 1 : Py_TYPE(self)->tp_name,
                                self->code->co_name, (long long)self->owner_id, (long long)self->hits);
}

/* info's word on something, or else the fallback. */
static PyObject *ask_info(TdEntry *self, const char *name, PyObject *fallback)
{
    if (self->info == NULL)
        return Py_NewRef(fallback);
    PyObject *found = PyObject_GetAttrString(self->info, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return Py_NewRef(fallback);
}

static PyObject *entry_guards(TdEntry *self, void *closure) { return ask_info(self, "guards", self->check); }
static PyObject *entry_graph(TdEntry *self, void *closure) { return ask_info(self, "graph", Py_None); }

static PyGetSetDef entry_getset[] = {
    {"guards", (getter)entry_guards, NULL, "The guards as info tells them, else what the entry was made with."},
    {"graph", (getter)entry_graph, NULL, "The graph that the code calls, if info has one."},
    {NULL},
};

static PyMemberDef entry_members[] = {
    {"code", T_OBJECT, offsetof(TdEntry, code), READONLY, "The code that runs."},
    {"check", T_OBJECT, offsetof(TdEntry, check), READONLY, "The GuardProgram, or check_fn, that the hook asks."},
    {"info", T_OBJECT, offsetof(TdEntry, info), READONLY, "Whatever its maker wanted to keep with it."},
    {"owner_id", T_LONGLONG, offsetof(TdEntry, owner_id), READONLY, "Whose callbacks it serves; 0: of whoever returns it first."},
    {"hits", T_LONGLONG, offsetof(TdEntry, hits), READONLY, "How often it ran."},
    {"live", T_BOOL, offsetof(TdEntry, live), READONLY, "Whether it is cached on a code object."},
    {NULL},
};

PyDoc_STRVAR(entry_doc,
             "Entry(code, guards, *, owner_id=0, info=None, local=(name, object))\n--\n\n"
             "Code to run in place of a function's own, whenever the guards hold: a GuardProgram, or a callable that\n"
             "is given the arguments as a dict. A callback returns it; the hook keeps it with the function's code.\n"
             "`local` is a variable that frames of the code begin with.");

static PyType_Slot entry_slots[] = {
    {Py_tp_doc, (void *)entry_doc},     {Py_tp_new, entry_new},       {Py_tp_dealloc, entry_dealloc},
    {Py_tp_traverse, entry_traverse},   {Py_tp_clear, entry_clear},   {Py_tp_repr, entry_repr},
    {Py_tp_getset, entry_getset},       {Py_tp_members, entry_members}, {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "torchdynamo._native.Entry",
    .basicsize = sizeof(TdEntry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = entry_slots,
};

int td_entry_init(PyObject *module)
{
    TdEntry_Type = (PyTypeObject *)PyType_FromSpec(&entry_spec);
    if (TdEntry_Type == NULL || PyModule_AddFunctions(module, td_compatible_functions) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Entry", (PyObject *)TdEntry_Type);
}
