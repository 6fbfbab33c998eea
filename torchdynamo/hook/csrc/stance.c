/* The stance of torch.compiler.set_stance: a global of a module of torch's, which says what compiled functions do now.
 *
 * A hit must not miss a change of it, and may not pay for one: the module's names have a tag that every write changes.
 * Where they have none, the stance itself is compared. */
#include "hook.h"

PyObject *td_stance_names = NULL;
uint64_t td_stance_tag = 0;
static PyObject *stance_name, *kind_name, *backend_name, *eager;
TdStance td_stance = TD_AS_USUAL;
static PyObject *known = NULL; /* the stance that td_stance tells of */

/* What the stance is, as far as those need to know who want to run what is compiled. */
static TdStance look(void)
{
    PyObject *stance = td_dict_get(td_stance_names, stance_name);
    if (stance == NULL)
        return TD_AS_USUAL;
    if (stance == known) {
        Py_DECREF(stance);
        return td_stance;
    }
    PyObject *kind = PyObject_GetAttr(stance, kind_name), *backend = PyObject_GetAttr(stance, backend_name);
    TdStance found = TD_AS_USUAL;
    if (kind != NULL && PyUnicode_Check(kind) && PyUnicode_Compare(kind, eager) == 0)
        found = TD_EAGER;
    else if (backend != NULL && backend != Py_None)
        found = TD_ASK;
    Py_XSETREF(known, stance);
    Py_XDECREF(kind);
    Py_XDECREF(backend);
    return found;
}

void td_stance_look(void)
{
    TD_SHARED_BEGIN
    uint64_t tag = td_dict_tag_from_now(td_stance_names);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    td_stance = look();
    PyErr_Clear(); /* where torch has it otherwise than we know it, there is none for us */
    PyErr_Restore(type, error, traceback);
    td_stance_tag = tag;
    TD_SHARED_END
}

static PyObject *follow_stance(PyObject *module, PyObject *globals)
{
    if (!PyDict_CheckExact(globals)) {
        PyErr_Format(PyExc_TypeError, "expected the names of a module, not %R", globals);
        return NULL;
    }
    Py_XSETREF(td_stance_names, Py_NewRef(globals));
    td_stance_look();
    Py_RETURN_NONE;
}

static PyMethodDef stance_functions[] = {
    {"follow_stance", follow_stance, METH_O,
     "follow_stance(names, /)\n--\n\nDo as `names['_stance']` says from now on: with the stance 'force_eager' nothing that is "
     "compiled runs, and with one that has a backend, callbacks are asked about each call."},
    {NULL},
};

int td_stance_init(PyObject *module)
{
    stance_name = PyUnicode_InternFromString("_stance");
    kind_name = PyUnicode_InternFromString("stance");
    backend_name = PyUnicode_InternFromString("backend");
    eager = PyUnicode_InternFromString("force_eager");
    if (stance_name == NULL || kind_name == NULL || backend_name == NULL || eager == NULL)
        return -1;
    return PyModule_AddFunctions(module, stance_functions);
}
