/* Whose callback is on, per thread, and whether our hook is in, for the interpreter.
 *
 * The interpreter has one hook for all threads; with any hook in, CPython calls Python functions the slow way. So ours
 * is in only while some thread has a callback. Another hook may come in above ours. Then we cannot get out from under
 * it, and when we are needed again we go on top: the chain is then a loop, which td_came_round cuts. */
#include "hook.h"

TD_THREAD_LOCAL TdThread *td_thread = NULL;
Py_ssize_t td_needed = 0;
int td_chained = 0;

static _PyFrameEvalFunction below = NULL;  /* what our hook passes frames on to */
static _PyFrameEvalFunction bottom = NULL; /* the same, when we came in with nobody above us */
static int buried = 0;                     /* somebody came in above us, and may pass frames to us for ever */
static _Thread_local TdRawFrame *passing = NULL;
static _Thread_local TdRawFrame *tried = NULL; /* a frame that only shows whether frames are passed to us */
static _Thread_local int tried_came = 0;
static int came_round = 0;                 /* what is below passes frames to us */
static int suspended = 0;                  /* how often the hook is kept out, whoever needs it */
static _Thread_local int suspended_here = 0;
static int awaited = 0;                    /* frames that are on their way to the hook, and have to find it in */

static void set_below(_PyFrameEvalFunction eval)
{
    below = eval;
    td_chained = eval != _PyEval_EvalFrameDefault;
}

/* Does somebody above us pass frames to us? */
static int is_passed_to(_PyFrameEvalFunction above)
{
    tried_came = 0;
    if (above != _PyEval_EvalFrameDefault)
        td_frame_try(PyThreadState_Get(), above, &tried);
    return tried_came;
}

int td_is_tried(TdRawFrame *frame) { return tried == frame && (tried_came = 1); }

/* Where NULL does not evaluate, another hook must find in what it has put in: torch's, that leaves once more than it came,
 * has NULL put in. So we do not go on top of one that passes frames to us, which would then leave without us seeing it. */
static void hook_install(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interp);
    if (current == td_eval_frame || suspended)
        return;
    if (!TD_NULL_EVALUATES && buried && is_passed_to(current))
        return;
    if (!TD_NULL_EVALUATES || !buried) {
        bottom = current;
        buried = 0;
    }
    set_below(current);
    came_round = 0;
    _PyInterpreterState_SetEvalFrameFunc(interp, td_eval_frame);
}

static void hook_take_out(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    if (!TD_NULL_EVALUATES && came_round) /* what was below us came in above us, too, and is not there any more */
        set_below(bottom = _PyEval_EvalFrameDefault);
    if (_PyInterpreterState_GetEvalFrameFunc(interp) == td_eval_frame)
        _PyInterpreterState_SetEvalFrameFunc(interp, below);
    else
        buried = 1;
    if (buried)
        set_below(bottom);
}

void td_hook_remove(void)
{
    TD_SHARED_BEGIN
    if (!suspended && td_needed == 0)
        hook_take_out();
    TD_SHARED_END
}

void td_hook_enter(void)
{
    TD_SHARED_BEGIN
    if (td_needed++ == 0)
        hook_install();
    TD_SHARED_END
}

void td_hook_leave(void)
{
    TD_SHARED_BEGIN
    if (--td_needed == 0 && !suspended)
        hook_take_out();
    TD_SHARED_END
}

int td_hook_suspend(void)
{
    int may;
    TD_SHARED_BEGIN
    if ((may = awaited == 0 || suspended > 0)) {
        suspended_here++;
        if (suspended++ == 0)
            hook_take_out();
    }
    TD_SHARED_END
    return may;
}

void td_hook_resume(void)
{
    TD_SHARED_BEGIN
    suspended_here--;
    if (--suspended == 0 && td_needed > 0)
        hook_install();
    TD_SHARED_END
}

int td_hook_await(void)
{
    int is_in;
    TD_SHARED_BEGIN
    is_in = suspended == 0;
    awaited += is_in;
    TD_SHARED_END
    return is_in;
}

void td_hook_awaited(void)
{
    TD_SHARED_BEGIN
    awaited--;
    TD_SHARED_END
}

int td_others_are_in(void)
{
    _PyFrameEvalFunction top = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    return top == td_eval_frame ? td_chained : top != _PyEval_EvalFrameDefault;
}

int td_came_round(TdRawFrame *frame) { return passing == frame && (came_round = 1); }

PyObject *td_run_frame(PyThreadState *tstate, TdRawFrame *frame, int throwing)
{
    if (TD_LIKELY(!td_chained))
        return td_eval(_PyEval_EvalFrameDefault, tstate, frame, throwing);
    TdRawFrame *outer = passing;
    passing = frame;
    PyObject *result = td_eval(below, tstate, frame, throwing);
    passing = outer;
    return result;
}

/* ---- leaving out of order ------------------------------------------------------------------------------------------ */

/* An activation that has been left while another one, entered later, was on: what that one has to put back instead. */
typedef struct TdLeft {
    int64_t serial;
    TdSetting prior;
    struct TdLeft *next;
} TdLeft;

/* Put on the setting, or where its activation has been left already, the one before that, and so on. */
static void put_back(TdThread *thread, TdSetting setting)
{
    TdLeft **place = &thread->left;
    while (*place != NULL) {
        TdLeft *left = *place;
        if (left->serial != setting.serial) {
            place = &left->next;
            continue;
        }
        Py_XDECREF(setting.callback);
        setting = left->prior;
        *place = left->next;
        PyMem_RawFree(left);
        place = &thread->left;
    }
    TdSetting stray = td_thread_swap(thread, setting);
    Py_XDECREF(stray.callback);
}

void td_leave_early(TdThread *thread, TdActivation activation)
{
    if (thread->serial == activation.serial) {
        put_back(thread, activation.prior);
        return;
    }
    TdLeft *left = PyMem_RawMalloc(sizeof(TdLeft));
    if (left == NULL) { /* then whoever came later is on no longer */
        put_back(thread, activation.prior);
        return;
    }
    *left = (TdLeft){activation.serial, activation.prior, thread->left};
    thread->left = left;
}

/* ---- the setting of a thread ------------------------------------------------------------------------------------ */

/* The thread's dict owns its TdThread, so a thread that ends with a callback on gives it up. */
static void thread_dealloc(TdThread *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (td_thread == self)
        td_thread = NULL;
    TdSetting prior = td_thread_swap(self, TD_OFF);
    Py_XDECREF(prior.callback);
    while (self->left != NULL) {
        TdLeft *left = self->left;
        self->left = left->next;
        Py_XDECREF(left->prior.callback);
        PyMem_RawFree(left);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot thread_slots[] = {{Py_tp_dealloc, thread_dealloc}, {0, NULL}};

static PyType_Spec thread_spec = {
    .name = "torchdynamo._native._Thread",
    .basicsize = sizeof(TdThread),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = thread_slots,
};

static PyTypeObject *thread_type = NULL;

static TdThread *thread_make(void)
{
    PyObject *dict = PyThreadState_GetDict();
    if (dict == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has no state to keep a callback in");
        return NULL;
    }
    TdThread *self = PyObject_New(TdThread, thread_type);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof(TdThread) - sizeof(PyObject));
    int failed = PyDict_SetItemString(dict, "torchdynamo._native", (PyObject *)self);
    Py_DECREF(self);
    return failed ? NULL : (td_thread = self);
}

TdThread *td_thread_get(void) { return TD_LIKELY(td_thread != NULL) ? td_thread : thread_make(); }

int td_setting_from(PyObject *callback, TdSetting *setting)
{
    *setting = TD_OFF;
    if (callback == Py_None)
        return 0;
    if (callback != Py_False) {
        if (!PyCallable_Check(callback)) {
            PyErr_Format(PyExc_TypeError, "a callback is a callable, None or False, not %R", callback);
            return -1;
        }
        PyObject *owner = PyObject_GetAttrString(callback, "owner_id");
        if (owner == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError))
                return -1;
            PyErr_Clear();
        }
        else {
            setting->owner_id = PyLong_AsLongLong(owner);
            Py_DECREF(owner);
            if (setting->owner_id == -1 && PyErr_Occurred())
                return -1;
        }
    }
    setting->callback = Py_NewRef(callback);
    return 0;
}

PyDoc_STRVAR(set_eval_frame_doc,
             "set_eval_frame(callback, /)\n--\n\n"
             "Set this thread's callback and return the one that was on before.\n\n"
             "None is off. False runs what is cached, asks nobody and caches nothing. Anything else is called as\n"
             "callback(frame, cache_entry, frame_state) for each function call that no cached entry fits, and returns\n"
             "None (run it as it is), an Entry such as GuardedCode, or an exception to be raised from the call.");

static PyObject *set_eval_frame(PyObject *module, PyObject *callback)
{
    TdThread *thread = td_thread_get();
    TdSetting setting;
    if (thread == NULL || td_setting_from(callback, &setting) < 0)
        return NULL;
    setting.serial = thread->serial; /* it is the activation under way that changes */
    TdSetting prior = td_thread_swap(thread, setting);
    return prior.callback != NULL ? prior.callback : Py_NewRef(Py_None);
}

PyDoc_STRVAR(hook_is_in_doc, "hook_is_in()\n--\n\nWhether the interpreter's frame evaluator is ours at this moment.");

static PyObject *hook_is_in(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == td_eval_frame);
}

PyDoc_STRVAR(forked_doc, "forked()\n--\n\nIn a new process: forget the threads that it does not have.");

static PyObject *forked(PyObject *module, PyObject *unused)
{
    int others = suspended - suspended_here;
    suspended = suspended_here;
    if (others > 0 && suspended == 0 && td_needed > 0)
        hook_install();
    Py_RETURN_NONE;
}

static PyMethodDef thread_functions[] = {
    {"forked", forked, METH_NOARGS, forked_doc},
    {"set_eval_frame", set_eval_frame, METH_O, set_eval_frame_doc},
    {"hook_is_in", hook_is_in, METH_NOARGS, hook_is_in_doc},
    {NULL},
};

int td_thread_init(PyObject *module)
{
    set_below(_PyEval_EvalFrameDefault);
    thread_type = (PyTypeObject *)PyType_FromSpec(&thread_spec);
    return thread_type == NULL ? -1 : PyModule_AddFunctions(module, thread_functions);
}
