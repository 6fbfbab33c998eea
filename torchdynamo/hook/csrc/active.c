/* The type callback_active: a with block in which a callback is on. In C, so that entering and leaving make no frames
 * for the callback to see. */
#include "hook.h"

typedef struct {
    PyObject_HEAD
    TdSetting setting;
    TdActivation activation;
    TdThread *entered; /* the thread that is inside, borrowed, or NULL */
} ActiveObject;

static PyObject *active_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"callback", NULL};
    PyObject *callback;
    TdSetting setting;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:callback_active", names, &callback)
        || td_setting_from(callback, &setting) < 0)
        return NULL;
    ActiveObject *self = (ActiveObject *)type->tp_alloc(type, 0);
    if (self == NULL)
        Py_XDECREF(setting.callback);
    else
        self->setting = setting;
    return (PyObject *)self;
}

static PyObject *active_enter(ActiveObject *self, PyObject *unused)
{
    TdThread *thread = td_thread_get();
    if (thread == NULL)
        return NULL;
    if (self->entered != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a callback_active is entered once; make another");
        return NULL;
    }
    self->entered = thread;
    self->activation = td_enter(thread, Py_XNewRef(self->setting.callback), self->setting.owner_id);
    return Py_NewRef((PyObject *)self);
}

static PyObject *active_exit(ActiveObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (self->entered == NULL || self->entered != td_thread) {
        PyErr_SetString(PyExc_RuntimeError, "a callback_active is left by the thread that entered it");
        return NULL;
    }
    TdActivation activation = self->activation;
    self->activation = (TdActivation){TD_OFF, 0};
    self->entered = NULL;
    td_leave(td_thread, activation);
    Py_RETURN_NONE;
}

static PyObject *active_prior(ActiveObject *self, void *closure)
{
    PyObject *prior = self->activation.prior.callback;
    return Py_NewRef(prior != NULL ? prior : Py_None);
}

static int active_traverse(ActiveObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->setting.callback);
    Py_VISIT(self->activation.prior.callback);
    return 0;
}

static int active_clear(ActiveObject *self)
{
    Py_CLEAR(self->setting.callback);
    Py_CLEAR(self->activation.prior.callback);
    return 0;
}

static void active_dealloc(ActiveObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->entered != NULL && self->entered == td_thread)
        Py_XDECREF(active_exit(self, NULL, 0)); /* nobody can leave the block any more */
    active_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef active_methods[] = {
    {"__enter__", (PyCFunction)active_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))active_exit, METH_FASTCALL, NULL},
    {NULL},
};

static PyGetSetDef active_getset[] = {
    {"prior", (getter)active_prior, NULL, "The callback that was on when the block was entered.", NULL},
    {NULL},
};

PyDoc_STRVAR(active_doc,
             "callback_active(callback)\n--\n\n"
             "A with block in which this thread's callback is the one given, as set_eval_frame takes it.\n"
             "Blocks may be left in another order than the reverse of that in which they were entered.");

static PyType_Slot active_slots[] = {
    {Py_tp_doc, (void *)active_doc},      {Py_tp_new, active_new},         {Py_tp_dealloc, active_dealloc},
    {Py_tp_traverse, active_traverse},    {Py_tp_clear, active_clear},     {Py_tp_methods, active_methods},
    {Py_tp_getset, active_getset},
    {0, NULL},
};

static PyType_Spec active_spec = {
    .name = "torchdynamo._native.callback_active",
    .basicsize = sizeof(ActiveObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = active_slots,
};

int td_active_init(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&active_spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "callback_active", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
