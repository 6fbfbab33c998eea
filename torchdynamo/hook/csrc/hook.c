/* The frame evaluator: what happens when a Python function is called in a thread that has a callback.
 *
 * A code object is unknown (the callback is asked), skipped (its frames run as they are), or has entries: the first
 * whose guards hold runs in the frame's place. */
#include "hook.h"

/* An error in what was only meant to speed a call up: the call goes on, the error is reported; but Ctrl-C and the like
 * are not ours to keep. Where the stack ends, the program has come to its end itself, and says so. 0: reported; -1: to
 * be raised. */
static int report_error(TdThread *thread, PyObject *culprit)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    if (PyErr_ExceptionMatches(PyExc_RecursionError)) {
        PyErr_Clear();
        return 0;
    }
    TdActivation off = td_enter(thread, NULL, 0); /* reporting calls sys.unraisablehook */
    PyErr_WriteUnraisable(culprit);
    td_leave(thread, off);
    return 0;
}

typedef enum { AS_IS, ENTRY, RAISE } Verdict;

typedef struct {
    TdEntry *entry;  /* owned, when the verdict is ENTRY */
    PyObject *bound; /* owned or NULL, likewise */
} Choice;

static int call_check(TdEntry *entry, const TdFrame *view, TdThread *thread)
{
    PyObject *locals = td_frame_locals(view);
    if (locals == NULL)
        return -1;
    TdActivation off = td_enter(thread, NULL, 0);
    PyObject *answer = PyObject_CallOneArg(entry->check, locals);
    int holds = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    td_leave(thread, off);
    Py_DECREF(locals);
    return holds;
}

/* 1: the entry may run; 0: not; -1: error. */
static inline int entry_holds(TdEntry *entry, const TdFrame *view, TdThread *thread, PyObject **bound)
{
    *bound = NULL;
    int holds = entry->native ? td_program_check(entry->check, view, bound) : call_check(entry, view, thread);
    if (holds == 1 && TD_UNLIKELY(!entry->live)) {
        Py_CLEAR(*bound); /* dropped while its guards ran */
        return 0;
    }
    return holds;
}

/* Keep the callback's answer for this code, and choose it if its guards hold. */
static Verdict accept(const TdFrame *view, TdThread *thread, PyObject *answer, Choice *choice)
{
    if (answer == Py_None)
        return AS_IS;
    if (PyExceptionInstance_Check(answer)) {
        if (PyException_SetTraceback(answer, Py_None) < 0) /* it is raised from here, wherever it was caught before */
            return RAISE;
        PyErr_SetObject((PyObject *)Py_TYPE(answer), answer);
        return RAISE;
    }
    if (!PyObject_TypeCheck(answer, TdEntry_Type)) {
        PyErr_Format(PyExc_TypeError, "a callback returns None or an Entry, not %R", answer);
        return RAISE;
    }
    TdEntry *entry = (TdEntry *)answer;
    if (entry->owner_id == 0)
        entry->owner_id = thread->owner_id;
    if (entry->owner_id != thread->owner_id && td_stance == TD_AS_USUAL) { /* else the stance may have a compiler */
        PyErr_Format(PyExc_ValueError, "%R was returned by the callback of owner %lld", entry,
                     (long long)thread->owner_id);
        return RAISE;
    }
    if (td_check_compatible(view->code, entry->code) < 0 || td_state_append(view->code, entry) < 0)
        return RAISE;
    int holds = entry_holds(entry, view, thread, &choice->bound);
    if (holds < 0)
        return report_error(thread, entry->check) < 0 ? RAISE : AS_IS;
    if (holds == 0)
        return AS_IS;
    choice->entry = (TdEntry *)Py_NewRef((PyObject *)entry);
    TD_SHARED_BEGIN
    td_hint_keep(td_state_of(view->code), td_look(view), entry); /* the one made for a size serves it from then on */
    TD_SHARED_END
    return ENTRY;
}

/* What to call for the callback. Another hook that is in sees the frames of the callback too, and may be a compiler that
 * takes them for the user's; a callback says by its attribute `shield` how it is kept from that. New reference. */
static PyObject *shielded(PyObject *callback)
{
    if (!td_others_are_in())
        return Py_NewRef(callback);
    PyObject *shield = PyObject_GetAttrString(callback, "shield");
    if (shield == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return NULL;
        PyErr_Clear();
        return Py_NewRef(callback);
    }
    PyObject *callee = PyObject_CallOneArg(shield, callback);
    Py_DECREF(shield);
    return callee;
}

static PyObject *call_callback(const TdFrame *view, TdThread *thread)
{
    TdCodeState *state = td_state_make(view->code);
    if (state == NULL)
        return NULL;
    PyObject *newest = td_state_newest(state), *notes = td_state_notes(state);
    PyObject *object = notes != NULL ? td_frame_object(view) : NULL;
    if (object == NULL) {
        Py_DECREF(newest);
        Py_XDECREF(notes);
        return NULL;
    }
    PyObject *args[] = {NULL, object, newest, notes};
    TdActivation off = td_enter(thread, NULL, 0);
    PyThreadState *tstate = PyThreadState_Get();
    int levels = td_levels_lend(tstate, thread);
    PyObject *callee = shielded(off.prior.callback), *answer = NULL;
    if (callee != NULL)
        answer = PyObject_Vectorcall(callee, args + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_XDECREF(callee);
    td_levels_give_back(tstate, thread, levels);
    td_leave(thread, off);
    td_frame_object_expire(object);
    Py_DECREF(object);
    Py_DECREF(newest);
    Py_DECREF(notes);
    return answer;
}

static Verdict ask(const TdFrame *view, TdThread *thread, Choice *choice)
{
    PyObject *callback = Py_NewRef(thread->callback);
    PyObject *answer = call_callback(view, thread);
    Verdict verdict;
    if (answer == NULL)
        verdict = report_error(thread, callback) < 0 ? RAISE : AS_IS;
    else
        verdict = accept(view, thread, answer, choice);
    Py_XDECREF(answer);
    Py_DECREF(callback);
    return verdict;
}

static inline int is_sifted(const TdCodeState *state, Py_ssize_t place, const TdEntry *entry, const TdAsked *asked)
{
    int sifted;
    TD_SHARED_BEGIN
    sifted = td_sifted(state, place, entry, asked);
    TD_SHARED_END
    return sifted;
}

/* Go through the entries; when none fits, ask, unless there is nobody to ask or asking was given up. */
static inline Verdict choose(const TdFrame *view, TdThread *thread, Choice *choice)
{
    TdCodeState *state = td_state_of(view->code);
    int run_only = thread->callback == Py_False;
    if (TD_UNLIKELY(td_stance_now() != TD_AS_USUAL))
        return td_stance == TD_EAGER || run_only ? AS_IS : ask(view, thread, choice);
    if (state != NULL && state->entries != NULL) {
        PyObject *entries; /* pins every entry while guards run */
        Py_ssize_t count = 0;
        uint64_t look = 0;
        TdEntry *likely = NULL;
        TdAsked asked = {0};
        TD_SHARED_BEGIN
        if ((entries = Py_XNewRef(state->entries)) != NULL && (count = PyTuple_GET_SIZE(entries)) > 1)
            likely = td_hint(state, look = td_look(view));
        TD_SHARED_END
        for (Py_ssize_t i = likely != NULL ? -1 : 0; i < count; i++) {
            TdEntry *entry = i < 0 ? likely : (TdEntry *)PyTuple_GET_ITEM(entries, i);
            if (i >= 0 && count > 1 && is_sifted(state, i, entry, &asked))
                continue;
            if (!entry->live || !(run_only || entry->owner_id == thread->owner_id) || (i >= 0 && entry == likely))
                continue;
            if (i >= 0 && count > 1 && entry->native && td_program_rejects(entry->check, view, &asked)) {
                TD_SHARED_BEGIN
                td_sift(state, i, entry, &asked);
                TD_SHARED_END
                continue;
            }
            int holds = entry_holds(entry, view, thread, &choice->bound);
            if (!entry->native || td_program_asks(entry->check)) { /* what runs in Python may have done anything */
                state = td_state_of(view->code);
                asked = (TdAsked){0};
            }
            if (holds == 0)
                continue;
            Verdict verdict = ENTRY;
            if (TD_UNLIKELY(holds < 0))
                verdict = report_error(thread, entry->check) < 0 ? RAISE : AS_IS;
            else
                choice->entry = (TdEntry *)Py_NewRef((PyObject *)entry);
            TD_SHARED_BEGIN
            if (i >= 0 && count > 1 && state != NULL && state->entries == entries) {
                td_hint_keep(state, look, entry);
                td_state_to_front(state, entries, i);
            }
            TD_SHARED_END
            Py_DECREF(entries);
            return verdict;
        }
        Py_XDECREF(entries);
        state = td_state_of(view->code);
    }
    if (run_only || (state != NULL && state->reason != NULL))
        return AS_IS;
    if (state != NULL && state->resting > 0 && state->resting_for == thread->owner_id) {
        state->resting--;
        return AS_IS;
    }
    if (TD_UNLIKELY(thread->asks_nobody) || !td_stack_has(TD_STACK_OF_A_CALLBACK))
        return AS_IS;
    if (state != NULL)
        state->resting_deep = 0;
    return ask(view, thread, choice);
}

char td_run_it;

/* TD_RUN_IT, or the result of the call. */
static __attribute__((noinline)) PyObject *prepare(PyThreadState *tstate, TdRawFrame *frame, TdThread *thread)
{
    TdFrame view;
    Choice choice;
    if (td_frame_open(frame, &view) < 0) {
        td_frame_discard(tstate, frame);
        return NULL;
    }
    Verdict verdict = choose(&view, thread, &choice);
    if (TD_LIKELY(verdict == ENTRY))
        return td_enter_entry(tstate, frame, &view, choice.entry, choice.bound);
    td_frame_close(&view);
    if (verdict == AS_IS)
        return TD_RUN_IT;
    td_frame_discard(tstate, frame);
    return NULL;
}

/* A frame that is left to Python with all that it calls. */
static __attribute__((noinline)) PyObject *run_quietly(PyThreadState *tstate, TdRawFrame *frame, TdThread *thread)
{
    TdActivation off = td_enter(thread, NULL, 0);
    PyObject *result = td_run_frame(tstate, frame, 0);
    td_leave(thread, off);
    return result;
}

/* A frame whose code rests, and what it calls with it: what has an entry there runs that, and nobody is asked. */
static __attribute__((noinline)) PyObject *run_asking_nobody(PyThreadState *tstate, TdRawFrame *frame, TdThread *thread)
{
    TdActivation deep = td_enter_asking_nobody(thread);
    PyObject *result = td_run_frame(tstate, frame, 0);
    td_leave(thread, deep);
    return result;
}

/* A frame that the callback may have something for. */
static inline PyObject *run(PyThreadState *tstate, TdRawFrame *frame, TdThread *thread)
{
    PyCodeObject *code = TD_FRAME_CODE(frame);
    TdCodeState *state = td_state_of(code);
    if (state != NULL && state->entries == NULL && state->reason != NULL)
        return TD_UNLIKELY(state->quiet) ? run_quietly(tstate, frame, thread) : td_run_frame(tstate, frame, 0);
    if (!td_frame_at_start(frame, code))
        return td_run_frame(tstate, frame, 0);
    if (TD_UNLIKELY(thread->awaited.func != NULL) && td_frame_is_awaited(thread, frame)) {
        PyObject *result = td_eval(_PyEval_EvalFrameDefault, tstate, frame, 0);
        td_frame_ended(tstate, frame);
        return result;
    }
    if (TD_UNLIKELY(td_lines_are_watched(tstate, code)))
        return td_run_frame(tstate, frame, 0);
    PyObject *result = prepare(tstate, frame, thread);
    if (result != TD_RUN_IT)
        return result;
    if (TD_FRAME_CODE(frame) != code) /* replaced: another hook would take what we wrote for the user's */
        return td_eval(_PyEval_EvalFrameDefault, tstate, frame, 0);
    state = td_state_of(code); /* the callback may have had it skipped, or rest */
    if (TD_LIKELY(state == NULL))
        return td_run_frame(tstate, frame, 0);
    if (TD_UNLIKELY(state->resting_deep) && state->resting_for == thread->owner_id && !thread->asks_nobody)
        return run_asking_nobody(tstate, frame, thread);
    return state->reason != NULL && state->quiet ? run_quietly(tstate, frame, thread) : td_run_frame(tstate, frame, 0);
}

/* The rest of a function: the frame of what came before has only to return what this one does, and ends with it. Or a
 * part of it, after which that frame goes on. */
static __attribute__((noinline)) PyObject *run_in_place(
    PyThreadState *tstate, TdRawFrame *frame, TdThread *thread, TdRawFrame *caller, int ends)
{
    td_frame_leave_out(tstate, caller);
    td_levels_add(tstate, 1);
    PyObject *result = run(tstate, frame, thread);
    td_levels_add(tstate, -1);
    td_frame_put_back(tstate, caller, frame, ends && result == NULL, &thread->ended_at);
    return result;
}

/* Calls nest so deep that a hook would use up the C stack: what this frame calls runs as Python runs it. */
static __attribute__((noinline)) PyObject *run_unhooked(PyThreadState *tstate, TdRawFrame *frame, int throwing)
{
    int is_out = td_hook_suspend();
    PyObject *result = td_run_frame(tstate, frame, throwing);
    if (is_out)
        td_hook_resume();
    return result;
}

/* A function that is left and gone on with at a break, in a call that led through others. */
static __attribute__((noinline)) PyObject *run_shown(
    PyThreadState *tstate, TdRawFrame *frame, TdThread *thread, TdCodeState *state)
{
    PyObject *way = td_state_way(state);
    PyObject *result = run(tstate, frame, thread);
    if (result == NULL)
        td_show_way(way);
    Py_DECREF(way);
    return result;
}

PyObject *td_eval_frame(PyThreadState *tstate, TdRawFrame *frame, int throwing)
{
    if (TD_UNLIKELY(td_stack_is_short() || td_c_calls_are_many(tstate))
        && (td_c_calls_are_many(tstate) || td_stack_is_half_used()))
        return run_unhooked(tstate, frame, throwing);
    TdThread *thread = td_thread;
    if (TD_UNLIKELY(td_chained) && td_came_round(frame))
        return td_eval(_PyEval_EvalFrameDefault, tstate, frame, throwing);
    if (thread == NULL || thread->callback == NULL || throwing) {
        if (!TD_NULL_EVALUATES && throwing && td_is_tried(frame))
            return NULL;
        if (TD_UNLIKELY(td_needed == 0))
            td_hook_remove();
        return td_run_frame(tstate, frame, throwing);
    }
    PyCodeObject *code = TD_FRAME_CODE(frame);
    TdCodeState *state = td_state_of(code);
    if (TD_UNLIKELY(state != NULL && state->tail) && td_frame_at_start(frame, code)) {
        TdRawFrame *caller = td_frame_take_over(tstate, frame, state->tail);
        if (caller != NULL && state->tail != TD_KEEPS_LOCALS)
            return run_in_place(tstate, frame, thread, caller, state->tail == TD_KEEPS_NOTHING);
        if (TD_UNLIKELY(state->way != NULL))
            return run_shown(tstate, frame, thread, state);
    }
    return run(tstate, frame, thread);
}
