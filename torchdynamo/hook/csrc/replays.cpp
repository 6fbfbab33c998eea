// Choose the recording for a call, and replay it: one call of a recorded graph. Where anything is out of the ordinary,
// Replays gives None, and Python decides (backends/cuda_graphs/runner.py).
#include "replays.h"

#include <structmember.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

using namespace td;

namespace {
// ---- Choosing it --------------------------------------------------------------------------------------------------

struct ReplaysObject {
    PyObject_HEAD
    PyObject *recordings, *acquire, *release, *stream, *index, *capturing, *blocked, *counter, *kind;
};

// 1, 0; -1: an error is set.
int is_true(PyObject *stolen)
{
    int answer = stolen == nullptr ? -1 : PyObject_IsTrue(stolen);
    Py_XDECREF(stolen);
    return answer;
}

int has_mark(PyObject *object, int name) { return is_true(PyObject_GetAttr(object, names[name])); }

// 1: tensors that a forward has saved there are alive.
int is_pending(PyObject *lane)
{
    THPObjectPtr saved(PyObject_GetAttr(lane, names[SAVED]));
    if (!saved || saved.get() == Py_None)
        return saved ? 0 : -1;
    const Lease *lease = in<Lease>(saved);
    return lease == nullptr ? -1 : is_used(*lease);
}

// 1: a replay may write to a result that somebody has.
int overwrites(PyObject *lane, PyObject *order)
{
    THPObjectPtr leases(PyObject_GetAttr(lane, names[LENT]));
    PyObject *key, *value;
    Py_ssize_t at = 0, own = PyLong_AsSsize_t(order);
    if (!leases || !PyDict_CheckExact(leases.get()))
        return -1;
    while (PyDict_Next(leases, &at, &key, &value)) {
        const Lease *lease = in<Lease>(value);
        if (lease == nullptr)
            return -1;
        if (PyLong_AsSsize_t(key) >= own && is_used(*lease))
            return 1;
    }
    return 0;
}

enum class Says { REPLAY, NEXT, ASK_PYTHON, ERROR };

Says says(Take &take, PyObject *recording, PyObject *lane, uint64_t stream, PyObject *const *inputs, Py_ssize_t count,
          const TdPlaced &seen)
{
    Fit fits = fit_again(*in<InputLayout>(take.layout.get()), inputs, count, seen);
    if (fits == Fit::NO)
        return Says::NEXT;
    int out = has_mark(lane, ABANDONED);
    if (out == 0)
        out = has_mark(recording, RETIRED);
    if (out != 0)
        return out < 0 ? Says::ERROR : Says::NEXT;
    if (take.stream != stream)
        return Says::ASK_PYTHON;
    int pending = take.follows_forward ? 0 : is_pending(lane);
    if (pending != 0 || fits == Fit::MOVED)
        return pending < 0 ? Says::ERROR : Says::NEXT;
    int written = overwrites(lane, take.order);
    return written < 0 ? Says::ERROR : written ? Says::ASK_PYTHON : Says::REPLAY;
}

// Releases the lock of a graph's recordings. An error that is set stays.
struct Turn {
    PyObject *release;
    ~Turn()
    {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        THPObjectPtr done(PyObject_CallNoArgs(release));
        if (!done)
            PyErr_WriteUnraisable(release);
        PyErr_Restore(type, error, traceback);
    }
};

bool count_one(ReplaysObject *self)
{
    THPObjectPtr before(PyObject_GetItem(self->counter, self->kind));
    THPObjectPtr now(before ? PyLong_FromLongLong(PyLong_AsLongLong(before) + 1) : nullptr);
    return now && PyObject_SetItem(self->counter, self->kind, now) == 0;
}

void move_to_front(PyObject *list, Py_ssize_t at)
{
    PyObject **items = ((PyListObject *)list)->ob_item, *item = items[at];
    memmove(items + 1, items, at * sizeof(PyObject *));
    items[0] = item;
}

// The results, Py_None if Python is to decide, or NULL with an error set.
PyObject *played(ReplaysObject *self, PyObject *const *inputs, Py_ssize_t count)
{
    int busy = self->blocked == Py_None ? 0 : is_true(PyObject_CallNoArgs(self->blocked));
    if (busy == 0)
        busy = is_true(PyObject_CallNoArgs(self->capturing));
    if (busy != 0 || PyList_GET_SIZE(self->recordings) == 0)
        return busy < 0 ? nullptr : Py_NewRef(Py_None);
    THPObjectPtr stream(PyObject_CallOneArg(self->stream, self->index));
    int turn = stream ? is_true(PyObject_CallOneArg(self->acquire, Py_False)) : -1;
    if (turn != 1)
        return turn < 0 ? nullptr : Py_NewRef(Py_None);
    Turn until_the_end{self->release};
    uint64_t current = PyLong_AsUnsignedLongLongMask(stream);
    TdPlaced seen = td_placed(inputs, count);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(self->recordings); at++) {
        THPObjectPtr recording(Py_NewRef(PyList_GET_ITEM(self->recordings, at)));
        THPObjectPtr holder(PyObject_GetAttr(recording, names[TAKE]));
        THPObjectPtr lane(holder ? PyObject_GetAttr(recording, names[LANE]) : nullptr);
        Take *take = lane ? in<Take>(holder) : nullptr;
        Says what = take == nullptr ? Says::ERROR : says(*take, recording, lane, current, inputs, count, seen);
        if (what == Says::NEXT)
            continue;
        if (what != Says::REPLAY)
            return what == Says::ERROR ? nullptr : Py_NewRef(Py_None);
        if (at > 0)
            move_to_front(self->recordings, at);
        return count_one(self) ? replayed(*take, recording, lane, inputs, count) : nullptr;
    }
    return Py_NewRef(Py_None);
}

PyObject *replays_replay(ReplaysObject *self, PyObject *list)
{
    HANDLE_TH_ERRORS
    if (!PyList_CheckExact(list))
        return PyErr_Format(PyExc_TypeError, "expected a list of inputs");
    PyObject *made = played(self, ((PyListObject *)list)->ob_item, PyList_GET_SIZE(list));
    if (made != nullptr && made != Py_None && PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0)
        Py_CLEAR(made);
    return made;
    END_HANDLE_TH_ERRORS
}

// ---- Replays ------------------------------------------------------------------------------------------------------

PyTypeObject *replays_type;

PyObject *replays_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *given[9];
    if (kwargs != nullptr || !PyArg_ParseTuple(args, "O!OOOOOOO!O:Replays", &PyList_Type, &given[0], &given[1], &given[2],
                                               &given[3], &given[4], &given[5], &given[6], &PyDict_Type, &given[7],
                                               &given[8]))
        return nullptr;
    PyObject *made = type->tp_alloc(type, 0);
    for (int i = 0; made != nullptr && i < 9; i++)
        (&((ReplaysObject *)made)->recordings)[i] = Py_NewRef(given[i]);
    return made;
}

int replays_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < 9; i++)
        Py_VISIT((&((ReplaysObject *)self)->recordings)[i]);
    return 0;
}

void replays_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int i = 0; i < 9; i++)
        Py_CLEAR((&((ReplaysObject *)self)->recordings)[i]);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef replays_methods[] = {
    {"replay", (PyCFunction)replays_replay, METH_O,
     "replay(inputs) -> results of the recording that fits, which leaves the list empty; None: none fits, or something\n"
     "stands against it."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot replays_slots[] = {
    {Py_tp_doc, (void *)"Replays(recordings, acquire, release, stream, index, capturing, blocked, counter, kind)\n--\n\n"
                        "Replays recordings, a list, in which the latest used come first. acquire, release: of the lock of\n"
                        "their memory. stream(index): number of the current stream. capturing() and blocked(), which may\n"
                        "be None: nothing is replayed now. counter[kind] counts the replays."},
    {Py_tp_new, (void *)replays_new},
    {Py_tp_dealloc, (void *)replays_dealloc},
    {Py_tp_traverse, (void *)replays_traverse},
    {Py_tp_methods, replays_methods},
    {0, nullptr},
};

PyType_Spec replays_spec = {"torchdynamo._native.Replays", sizeof(ReplaysObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, replays_slots};

// ---- DirectCall ---------------------------------------------------------------------------------------------------

struct DirectObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *dict, *replays, *otherwise;
    Positions *counted, *results; // of each result the input that it is, or -1
};

PyObject *called_otherwise(DirectObject *self, PyObject *const *args, Py_ssize_t count)
{
    THPObjectPtr list(PyList_New(count));
    for (Py_ssize_t at = 0; list && at < count; at++)
        PyList_SET_ITEM(list.get(), at, Py_NewRef(args[at]));
    THPObjectPtr otherwise(Py_NewRef(self->otherwise));
    return list ? PyObject_CallOneArg(otherwise, list) : nullptr;
}

PyObject *direct_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *keywords)
{
    HANDLE_TH_ERRORS
    DirectObject *self = (DirectObject *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if (keywords != nullptr && PyTuple_GET_SIZE(keywords) > 0)
        return PyErr_Format(PyExc_TypeError, "a graph takes no keywords");
    THPObjectPtr made(played((ReplaysObject *)self->replays, args, count));
    if (!made || made.get() == Py_None)
        return made ? called_otherwise(self, args, count) : nullptr;
    if (PyList_GET_SIZE(made.get()) != (Py_ssize_t)self->results->size())
        return PyErr_Format(PyExc_RuntimeError, "a recording has another number of results than its graph");
    for (Py_ssize_t at : *self->counted)
        THPVariable_Unpack(args[at]).unsafeGetTensorImpl()->bump_version();
    for (size_t at = 0; at < self->results->size(); at++)
        if ((*self->results)[at] >= 0 && PyList_SetItem(made, (Py_ssize_t)at, Py_NewRef(args[(*self->results)[at]])) < 0)
            return nullptr;
    return made.release();
    END_HANDLE_TH_ERRORS
}

PyObject *direct_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *replays, *otherwise, *counted, *results;
    auto positions = std::make_unique<Positions>(), bases = std::make_unique<Positions>();
    if (kwargs != nullptr ||
        !PyArg_ParseTuple(args, "O!OOO:DirectCall", replays_type, &replays, &otherwise, &counted, &results) ||
        !read_positions(counted, *positions) || !read_positions(results, *bases))
        return nullptr;
    DirectObject *self = (DirectObject *)type->tp_alloc(type, 0);
    if (self == nullptr)
        return nullptr;
    self->vectorcall = direct_call;
    self->replays = Py_NewRef(replays);
    self->otherwise = Py_NewRef(otherwise);
    self->counted = positions.release();
    self->results = bases.release();
    return (PyObject *)self;
}

int direct_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((DirectObject *)self)->dict);
    Py_VISIT(((DirectObject *)self)->replays);
    Py_VISIT(((DirectObject *)self)->otherwise);
    return 0;
}

int direct_clear(PyObject *self)
{
    // Code that outlives this in a cycle may call it still: what it calls must stay callable.
    Py_XSETREF(((DirectObject *)self)->otherwise, Py_NewRef((PyObject *)&PyType_Type));
    Py_CLEAR(((DirectObject *)self)->dict);
    return 0;
}

void direct_dealloc(PyObject *object)
{
    DirectObject *self = (DirectObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->replays);
    Py_CLEAR(self->otherwise);
    delete self->counted;
    delete self->results;
    type->tp_free(object);
    Py_DECREF(type);
}

PyMemberDef direct_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(DirectObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(DirectObject, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot direct_slots[] = {
    {Py_tp_doc, (void *)"DirectCall(replays, otherwise, counted, results)\n--\n\n"
                        "Calls replays with its arguments, and otherwise(list of them) where that has no recording. counted:\n"
                        "positions of inputs whose versions go up. results: of each the input that it is, or -1."},
    {Py_tp_new, (void *)direct_new},
    {Py_tp_dealloc, (void *)direct_dealloc},
    {Py_tp_traverse, (void *)direct_traverse},
    {Py_tp_clear, (void *)direct_clear},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_members, direct_members},
    {0, nullptr},
};

PyType_Spec direct_spec = {"torchdynamo._native.DirectCall", sizeof(DirectObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, direct_slots};

} // namespace

extern "C" int td_replays_init(PyObject *module)
{
    replays_type = (PyTypeObject *)PyType_FromSpec(&replays_spec);
    THPObjectPtr direct_type(PyType_FromSpec(&direct_spec));
    if (replays_type == nullptr || !direct_type || PyModule_AddObjectRef(module, "Replays", (PyObject *)replays_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "DirectCall", direct_type);
}
