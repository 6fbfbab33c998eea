/* Reading what C code keeps: attributes, and what functions and methods that only look say.
 *
 * Most of it is read here, from where it lies. The rest is asked of code that may do anything: a getter, which may raise an
 * audit event, run Python, or let other threads run. That is done only where the caller is ready for it; see
 * guards_outside.c. */
#include "guards.h"
#include "hook.h"
#include <structmember.h>

char td_outside;

/* ---- Asking code of others ----------------------------------------------------------------------------------------- */

typedef struct {
    TdThread *thread;
    TdSetting setting;
} Aside;

/* Whoever listens for an audit event, or is called by a getter, is no part of the program. */
static Aside step_aside(TdLeave *leave)
{
    Aside aside = {td_thread, TD_OFF};
    leave->left = 1;
    if (aside.thread != NULL)
        aside.setting = td_thread_swap(aside.thread, TD_OFF);
    return aside;
}

/* What cannot be read is not there; but Ctrl-C and the like are not ours to keep. */
static PyObject *come_back(Aside aside, PyObject *answer)
{
    if (answer == NULL && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    if (aside.thread != NULL) {
        TdSetting stray = td_thread_swap(aside.thread, aside.setting);
        Py_XDECREF(stray.callback);
    }
    return answer;
}

/* ---- Code of others that only looks ---------------------------------------------------------------------------------- */

#define MOST_LOOKERS 64

static PyObject *lookers[MOST_LOOKERS]; /* getters and methods in C that run no code but their own; owned */
static int n_lookers = 0;

static int only_looks(PyObject *descriptor)
{
    for (int i = 0; i < n_lookers; i++)
        if (lookers[i] == descriptor)
            return 1;
    return 0;
}

static PyObject *look(PyObject *descriptor, PyObject *obj)
{
    int was_on = td_gc_pause();
    PyObject *value = Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)
                          ? Py_TYPE(descriptor)->tp_descr_get(descriptor, obj, (PyObject *)Py_TYPE(obj))
                          : PyObject_CallOneArg(descriptor, obj);
    if (value == NULL)
        PyErr_Clear();
    td_gc_resume(was_on);
    return value;
}

static PyObject *add_looker(PyObject *Py_UNUSED(module), PyObject *descriptor)
{
    if (!Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) && !Py_IS_TYPE(descriptor, &PyMethodDescr_Type))
        return PyErr_Format(PyExc_TypeError, "expected a getter or method in C, got %.100s", Py_TYPE(descriptor)->tp_name);
    if (!only_looks(descriptor)) {
        if (n_lookers == MOST_LOOKERS)
            return PyErr_Format(PyExc_ValueError, "more than %d", MOST_LOOKERS);
        lookers[n_lookers++] = Py_NewRef(descriptor);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"only_looks", add_looker, METH_O,
     "only_looks(descriptor): guards may ask this getter or method in C in the midst of a pass: it runs no other code."},
    {NULL, NULL, 0, NULL},
};

int td_attrs_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }

/* ---- Attributes ---------------------------------------------------------------------------------------------------- */

/* Where a slot or member keeps its object; NULL if it is not such a one. */
static PyObject **member_place(PyObject *obj, PyObject *descriptor, int *optional)
{
    PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
    if (!PyObject_TypeCheck(obj, PyDescr_TYPE(descriptor)) || (member->type != T_OBJECT && member->type != T_OBJECT_EX))
        return NULL;
    *optional = member->type == T_OBJECT;
    return (PyObject **)((char *)obj + member->offset);
}

static int is(PyObject *name, const char *text) { return PyUnicode_CompareWithASCIIString(name, text) == 0; }

/* What functools.lru_cache keeps goes by a name that no attribute has. */
static int is_cache(PyObject *name) { return is(name, "<cache>"); }

/* What a function's getters give, some of which raise audit events. */
static PyObject **function_place(PyFunctionObject *fn, PyObject *name)
{
    return is(name, "__defaults__")     ? &fn->func_defaults
           : is(name, "__kwdefaults__") ? &fn->func_kwdefaults
           : is(name, "__code__")       ? &fn->func_code
           : is(name, "__name__")       ? &fn->func_name
           : is(name, "__qualname__")   ? &fn->func_qualname
           : is(name, "__closure__")    ? &fn->func_closure
           : is(name, "__globals__")    ? &fn->func_globals
                                        : NULL;
}

/* And what those of a class do that a class statement made. */
static PyObject **class_place(PyTypeObject *cls, PyObject *name)
{
    if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return NULL;
    PyHeapTypeObject *made = (PyHeapTypeObject *)cls;
    return is(name, "__name__") ? &made->ht_name : is(name, "__qualname__") ? &made->ht_qualname : NULL;
}

/* A property whose getter is C++, as pybind11 makes them. */
static int is_property_in_c(PyObject *descriptor)
{
    static PyObject *name;
    if (!Py_IS_TYPE(descriptor, &PyProperty_Type) || (name == NULL && !(name = PyUnicode_InternFromString("fget"))))
        return 0;
    int optional;
    PyObject **place = member_place(descriptor, _PyType_Lookup(&PyProperty_Type, name), &optional);
    return place != NULL && *place != NULL && PyInstanceMethod_Check(*place) &&
           PyCFunction_Check(PyInstanceMethod_GET_FUNCTION(*place));
}

static PyObject *ask(PyObject *obj, PyObject *descriptor, PyObject **temp, TdLeave *leave)
{
    if (leave == NULL)
        return TD_OUTSIDE;
    Aside aside = step_aside(leave);
    return *temp = come_back(aside, Py_TYPE(descriptor)->tp_descr_get(descriptor, obj, (PyObject *)Py_TYPE(obj)));
}

static PyObject *from_getter(PyObject *obj, PyObject *descriptor, PyObject *name, PyObject **temp, TdLeave *leave)
{
    PyObject **place = PyFunction_Check(obj) ? function_place((PyFunctionObject *)obj, name) : NULL;
    if (PyType_Check(obj) && PyDescr_TYPE(descriptor) == &PyType_Type)
        place = class_place((PyTypeObject *)obj, name);
    if (place != NULL)
        return *place == NULL ? Py_None : *place;
    if (TD_CALLS_WHILE_ALONE && only_looks(descriptor))
        return *temp = look(descriptor, obj);
    return ask(obj, descriptor, temp, leave);
}

/* Each thread has a dict of its own there. A subclass may have an `__init__`, which runs where a thread looks first. */
static PyObject *of_this_thread(PyObject *obj, PyObject *name, PyObject **temp, TdLeave *leave)
{
    if (TD_CALLS_WHILE_ALONE && Py_IS_TYPE(obj, td_local_type)) {
        int was_on = td_gc_pause();
        if ((*temp = PyObject_GetAttr(obj, name)) == NULL)
            PyErr_Clear();
        td_gc_resume(was_on);
        return *temp;
    }
    if (leave == NULL)
        return TD_OUTSIDE;
    Aside aside = step_aside(leave);
    return *temp = come_back(aside, PyObject_GetAttr(obj, name));
}

static PyObject *of_tensor(PyObject *obj, PyObject *name, PyObject **temp, TdLeave *leave)
{
    int was_on = td_gc_pause(), known;
    *temp = td_tensor_attr(obj, name, &known);
    td_gc_resume(was_on);
    if (known)
        return *temp;
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(obj), name);
    if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) { /* a slot that a subclass has */
        int optional;
        PyObject **place = member_place(obj, descriptor, &optional);
        return place == NULL ? NULL : *place;
    }
    if (leave == NULL)
        return TD_OUTSIDE;
    Aside aside = step_aside(leave);
    return *temp = come_back(aside, td_tensor_getter(obj, name));
}

/* What the object's class has by the name says how it is read. */
static PyObject *by_descriptor(PyObject *obj, PyObject *descriptor, PyObject *name, PyObject **temp, TdLeave *leave)
{
    if (descriptor == NULL) {
        PyObject **cache = is_cache(name) ? td_cache_place(obj) : NULL;
        return cache == NULL ? NULL : *cache;
    }
    int optional;
    if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        PyObject **place = member_place(obj, descriptor, &optional);
        if (place != NULL)
            return *place == NULL && optional ? Py_None : *place;
        return from_getter(obj, descriptor, name, temp, leave);
    }
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type))
        return from_getter(obj, descriptor, name, temp, leave);
    return is_property_in_c(descriptor) ? ask(obj, descriptor, temp, leave) : NULL;
}

PyObject *td_attr(PyObject *obj, PyObject *name, PyObject **temp, TdLeave *leave)
{
    if (td_is_tensor(obj))
        return of_tensor(obj, name, temp, leave);
    if (TD_UNLIKELY(Py_TYPE(obj)->tp_getattro == td_local_type->tp_getattro))
        return of_this_thread(obj, name, temp, leave);
    PyObject *held, *descriptor = td_class_look_up(Py_TYPE(obj), name, &held);
    PyObject *value = by_descriptor(obj, descriptor, name, temp, leave);
    Py_XDECREF(held);
    return value;
}

/* Not what the object's class has by the name: a subclass may have something else there. */
PyObject *td_field(PyObject *obj, PyObject *descriptor, PyObject **temp, TdLeave *leave)
{
    int optional, is_member = Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
    PyObject **place = is_member ? member_place(obj, descriptor, &optional) : NULL;
    if (place != NULL)
        return *place == NULL && optional ? Py_None : *place;
    if (!is_member && !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type))
        return NULL;
    return PyObject_TypeCheck(obj, PyDescr_TYPE(descriptor)) ? ask(obj, descriptor, temp, leave) : NULL;
}

PyObject **td_attr_place(PyObject *obj, PyObject *name)
{
    int optional;
    if (is_cache(name))
        return td_cache_place(obj);
    if (PyFunction_Check(obj)) {
        PyObject **place = function_place((PyFunctionObject *)obj, name);
        return place == NULL || *place == NULL ? NULL : place;
    }
    if (td_is_tensor(obj) || (Py_TYPE(obj)->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return NULL;
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(obj), name);
    PyObject **place = descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
                           ? member_place(obj, descriptor, &optional)
                           : NULL;
    return place == NULL || *place == NULL ? NULL : place;
}

int td_attr_unbound(PyObject *obj, PyObject *name)
{
    PyObject *descriptor = _PyType_Lookup(Py_TYPE(obj), name);
    int optional;
    if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
        return 0;
    PyObject **place = member_place(obj, descriptor, &optional);
    return place != NULL && *place == NULL && !optional;
}

/* What a cell, a dictionary under a name, or a slot of that name holds: borrowed. */
static TdLookup held_at(PyObject *place, PyObject *name)
{
    TdLookup found = {NULL, 1, 1};
    if (PyCell_Check(place)) {
        found.value = PyCell_GET(place);
    } else if (PyUnicode_CheckExact(name) && PyDict_Check(place)) {
        TdItem item = {name, PyObject_Hash(name), ITEM_EQUAL, -1}; /* of a str, which cannot fail */
        return td_dict_look_up(place, &item);
    } else if (PyUnicode_CheckExact(name)) {
        PyObject *descriptor = _PyType_Lookup(Py_TYPE(place), name);
        int optional, of_slot = descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
        PyObject **slot = of_slot ? member_place(place, descriptor, &optional) : NULL;
        found.value = slot == NULL ? NULL : *slot;
    }
    return found;
}

/* Only a `__del__` in Python puts something into the struct of a class of the heap. */
int td_drops_quietly(PyObject *place, PyObject *name)
{
    static PyObject *del;
    TdLookup found = held_at(place, name);
    PyObject *held = found.value;
    if (!found.told)
        return 0;
    if (held == NULL || !(Py_TYPE(held)->tp_flags & Py_TPFLAGS_HEAPTYPE) || Py_TYPE(held)->tp_finalize == NULL)
        return 1;
    if (del == NULL && (del = PyUnicode_InternFromString("__del__")) == NULL)
        return PyErr_Clear(), 0;
    PyObject *finalizer = _PyType_Lookup(Py_TYPE(held), del);
    return finalizer == NULL || Py_IS_TYPE(finalizer, &PyMethodDescr_Type) || Py_IS_TYPE(finalizer, &PyWrapperDescr_Type);
}

/* ---- Functions and methods ----------------------------------------------------------------------------------------- */

/* A function of a module in C that is asked for nothing but what it knows: a flag, a count, a token. */
static int reads_a_flag(PyObject *fn, PyObject *args)
{
    PyCFunctionObject *function = (PyCFunctionObject *)fn;
    if (PyTuple_GET_SIZE(args) > 0)
        return 0;
    if (function->m_self != NULL && PyModule_Check(function->m_self))
        return 1;
    return function->m_module != NULL && PyUnicode_CheckExact(function->m_module) && is(function->m_module, "torch._C");
}

/* Only what is written in C and does nothing but look: a builtin that reads a flag, or a weak reference, which gives
 * what it refers to, whatever the user's subclass makes of a call. */
PyObject *td_call(PyObject *fn, PyObject *args, PyObject **temp, TdLeave *leave)
{
    if (PyWeakref_CheckRef(fn))
        return *temp = td_weak_get(fn);
    if (!PyCFunction_Check(fn))
        return NULL;
    if (TD_CALLS_WHILE_ALONE && reads_a_flag(fn, args)) {
        int was_on = td_gc_pause();
        if ((*temp = PyObject_Call(fn, args, NULL)) == NULL)
            PyErr_Clear();
        td_gc_resume(was_on);
        return *temp;
    }
    if (leave == NULL)
        return TD_OUTSIDE;
    Aside aside = step_aside(leave);
    return *temp = come_back(aside, PyObject_Call(fn, args, NULL));
}

/* What a function of ours in Python says of the object. It may ask the program's code. */
PyObject *td_asked(PyObject *obj, PyObject *fn, PyObject **temp, TdLeave *leave)
{
    if (leave == NULL)
        return TD_OUTSIDE;
    Aside aside = step_aside(leave);
    return *temp = come_back(aside, PyObject_CallOneArg(fn, obj));
}

PyObject *td_method(PyObject *obj, PyObject *name, PyObject **temp, TdLeave *leave)
{
    int is_tensor = td_is_tensor(obj);
    if (is_tensor) {
        int was_on = td_gc_pause();
        *temp = td_tensor_read(obj, name);
        td_gc_resume(was_on);
        if (*temp != NULL)
            return *temp;
    }
    /* Of a type that a class statement made, or that somebody can change, the method need not be C's. */
    else if ((Py_TYPE(obj)->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_IMMUTABLETYPE)) == Py_TPFLAGS_HEAPTYPE)
        return NULL;
    PyObject *descriptor = is_tensor ? NULL : _PyType_Lookup(Py_TYPE(obj), name);
    if (TD_CALLS_WHILE_ALONE && descriptor != NULL && only_looks(descriptor))
        return *temp = look(descriptor, obj);
    if (leave == NULL)
        return TD_OUTSIDE;
    Aside aside = step_aside(leave);
    return *temp = come_back(aside, is_tensor ? td_tensor_call(obj, name) : PyObject_CallMethodNoArgs(obj, name));
}
