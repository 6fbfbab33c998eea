/* What the C files of the hook share. Everything here is guarded by the GIL, or what stands
 * in for it: see compat_threads.h. */
#ifndef TORCHDYNAMO_HOOK_H
#define TORCHDYNAMO_HOOK_H
#include "compat.h"

/* ---- code_state.c: what is known of a code object -------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyCodeObject *code;
    PyObject *check;       /* a GuardProgram, or a Python callable check_fn(f_locals) */
    PyObject *info;        /* the front end's, or NULL */
    int64_t owner_id;
    int64_t serial;        /* order of arrival */
    int64_t hits;
    int64_t ran_at;        /* how many entries had been made when it ran last */
    Py_ssize_t bound_slot; /* of the local __bound, or -1 */
    PyObject *local;       /* what a local of the code is when a frame begins, or NULL */
    Py_ssize_t local_slot; /* of that */
    Py_ssize_t nargs;      /* slots taken by arguments */
    char native;           /* check is a GuardProgram */
    char live;             /* it is among a code object's entries, and not dropped */
} TdEntry;

typedef struct TdCodeState {
    PyObject *entries;     /* tuple of TdEntry, the likeliest first; replaced when changed, never seen by Python */
    PyObject *reason;      /* why the code is not asked about again, or NULL */
    char quiet;            /* skipped, and nothing is asked about what it calls either */
    PyObject *way;         /* sees to the traceback of what is raised where that code calls this one, or NULL */
    char tail;             /* what code that rests on this one and calls it needs afterwards: TD_KEEPS_... or 0 */
    PyObject *notes;       /* the dict that callbacks get as frame_state, made when first needed */
    int64_t resting_for;   /* the owner that is not asked for the next calls without an entry, */
    long resting;          /* and for how many of them */
    char resting_deep;     /* nor about what those call */
    struct TdHints *hints; /* which entry is likely for what; see dispatch.c */
    PyCodeObject *code;    /* borrowed: the code owns this state */
    struct TdCodeState *next, **link;
} TdCodeState;

extern PyTypeObject *TdEntry_Type;
extern Py_ssize_t td_extra_index;
extern int64_t td_entries_made;
extern TdCodeState *td_states; /* of all code objects that have one */

static inline TdCodeState *td_state_of(PyCodeObject *code)
{
    return (TdCodeState *)td_code_extra(code, td_extra_index);
}

TdCodeState *td_state_make(PyCodeObject *code);            /* the state, made if there is none; NULL with an error */
PyObject *td_state_notes(TdCodeState *state);              /* new reference */
PyObject *td_state_way(TdCodeState *state);                /* new reference */
PyCodeObject *td_expect_code(PyObject *object);            /* borrowed; NULL with an error if it is something else */
int td_state_init(PyObject *module);

/* ---- entries.c: what is cached on code objects ------------------------------------------------------------------- */

int td_state_append(PyCodeObject *code, TdEntry *entry);   /* 0, or -1 with an error */
void td_state_to_front(TdCodeState *state, PyObject *entries, Py_ssize_t index);
PyObject *td_state_newest(TdCodeState *state);             /* new reference to an entry, or to None */
int td_entries_init(PyObject *module);

/* ---- dispatch.c: which entry to try first ------------------------------------------------------------------------- */

uint64_t td_look(const TdFrame *view);                     /* what the arguments look like */
TdEntry *td_hint(const TdCodeState *state, uint64_t look); /* borrowed; NULL: none is known */
void td_hint_keep(TdCodeState *state, uint64_t look, TdEntry *entry);
void td_hints_forget(TdCodeState *state);
int td_sifted(const TdCodeState *state, Py_ssize_t place, const TdEntry *entry, const TdAsked *asked); /* it says no */
void td_sift(TdCodeState *state, Py_ssize_t place, const TdEntry *entry, const TdAsked *asked); /* it has said no */

/* ---- entry.c, compatible.c --------------------------------------------------------------------------------------- */

Py_ssize_t td_code_nargs(PyCodeObject *code);              /* all arguments, *args and **kwargs with them */
int td_check_compatible(PyCodeObject *code, PyCodeObject *replacement); /* 0, or -1 with ValueError */
int td_local_slot(PyCodeObject *code, const char *name, Py_ssize_t *slot); /* or -1: no such local; -1 with ValueError */
int td_entry_init(PyObject *module);

/* ---- frame.c: the frame as callbacks see it --------------------------------------------------------------------- */

PyObject *td_frame_locals(const TdFrame *frame);           /* new dict of the arguments */
PyObject *td_frame_object(const TdFrame *frame);
void td_frame_object_expire(PyObject *object);
int td_frame_init(PyObject *module);

/* ---- depth.c: how deep calls may nest --------------------------------------------------------------------------- */

#define TD_THREAD_LOCAL _Thread_local __attribute__((visibility("hidden")))

typedef struct {
    uintptr_t end;     /* the lowest address of the thread's C stack */
    uintptr_t reserve; /* so much above it is kept for code without the hook; UINTPTR_MAX: nobody has looked yet */
} TdStack;

extern TD_THREAD_LOCAL TdStack td_stack;

int td_stack_has(size_t bytes);  /* so much is left of the C stack, or nobody knows how much */
int td_stack_is_half_used(void); /* looks where the stack ends first, if need be */

#define TD_STACK_OF_A_CALLBACK (256 * 1024) /* bytes, with room to spare: captures were seen to take a quarter of it */

/* May be true where it is not known yet how large the stack is. A stack of somebody's own making is never short. */
static inline int td_stack_is_short(void)
{
    return (uintptr_t)__builtin_frame_address(0) - td_stack.end < td_stack.reserve;
}

/* ---- thread.c: whose callback is on, and whether our hook is in ------------------------------------------------- */

/* A function that is being called, until its frame comes by, and what that begins with. */
typedef struct {
    PyObject *func;          /* borrowed; NULL: none is */
    PyObject *bound, *local; /* for locals, or NULL; the frame takes the references */
    Py_ssize_t bound_slot, local_slot;
    int gc;                  /* the garbage collector was on, and waits until the frame comes */
} TdAwaited;

typedef struct {
    PyObject_HEAD
    PyObject *callback;      /* NULL: off; False: run mode; else called for what has no entry */
    int64_t owner_id;
    int64_t serial;          /* of the activation that set them */
    char asks_nobody;        /* what has an entry runs that, all else as it is */
    int64_t serials;         /* how many activations there have been */
    struct TdLeft *left;     /* activations that were left before one that was entered later; or NULL */
    TdAwaited awaited;       /* the call that swap.c is making */
    void *passed_by, *below; /* where frames are no slots: one that tracebacks leave out, and the traceback without it; borrowed */
    int ended_at;            /* the line where the last rest of a function ended that raised */
    int lent;                /* calls may nest deeper than Python allows, for code of ours */
} TdThread;

extern TD_THREAD_LOCAL TdThread *td_thread; /* NULL until the thread first sets a callback */
extern int td_chained;                    /* what is below our hook is another one, not CPython's evaluator */
extern Py_ssize_t td_needed;              /* how many threads have a callback */

typedef struct {
    PyObject *callback; /* owned, or NULL */
    int64_t owner_id;
    int64_t serial;     /* which activation of the thread it is; 0: none, the setting at the bottom */
    char asks_nobody;
} TdSetting;

/* What is needed to leave again: the setting before, and which activation this is. */
typedef struct {
    TdSetting prior;
    int64_t serial;
} TdActivation;

TdThread *td_thread_get(void);                                      /* NULL with an error */
int td_setting_from(PyObject *callback, TdSetting *setting);        /* reads a callback and its owner; -1: error */
void td_hook_enter(void);                                           /* one more thread needs the hook */
void td_hook_leave(void);
void td_hook_remove(void);                                          /* if it is on top */
int td_hook_suspend(void); /* for all threads, until this one resumes it; 0: not now, a thread awaits a frame */
void td_hook_resume(void);
int td_hook_await(void);                                            /* keep it in until a frame comes by; 0: it is out */
void td_hook_awaited(void);
int td_others_are_in(void);                                         /* frames pass through another hook than ours */
PyObject *td_run_frame(PyThreadState *tstate, TdRawFrame *frame, int throwing); /* past our hook */
int td_came_round(TdRawFrame *frame);                               /* the chain of hooks is a loop */
int td_is_tried(TdRawFrame *frame);                                 /* it has come, which is all it is there for */
int td_thread_init(PyObject *module);

/* Put a setting on the thread and get back the one before. Steals, and gives, the reference. */
static inline TdSetting td_thread_swap(TdThread *thread, TdSetting setting)
{
    TdSetting prior = {thread->callback, thread->owner_id, thread->serial, thread->asks_nobody};
    thread->callback = setting.callback;
    thread->owner_id = setting.owner_id;
    thread->serial = setting.serial;
    thread->asks_nobody = setting.asks_nobody;
    if ((prior.callback == NULL) != (setting.callback == NULL)) {
        if (setting.callback != NULL)
            td_hook_enter();
        else
            td_hook_leave();
    }
    return prior;
}

void td_leave_early(TdThread *thread, TdActivation activation);

/* Have another callback on, or none, until td_leave. Steals the reference to the callback. */
static inline TdActivation td_enter(TdThread *thread, PyObject *callback, int64_t owner_id)
{
    TdSetting setting = {callback, owner_id, ++thread->serials, 0};
    return (TdActivation){td_thread_swap(thread, setting), setting.serial};
}

/* Have nobody asked until td_leave, with the callback that is on. */
static inline TdActivation td_enter_asking_nobody(TdThread *thread)
{
    TdActivation activation = td_enter(thread, Py_XNewRef(thread->callback), thread->owner_id);
    thread->asks_nobody = 1;
    return activation;
}

/* Put back what was there before. Coroutines and greenlets of one thread need not leave in the reverse order of entering. */
static inline void td_leave(TdThread *thread, TdActivation activation)
{
    if (TD_UNLIKELY(thread->serial != activation.serial || thread->left != NULL)) {
        td_leave_early(thread, activation);
        return;
    }
    TdSetting stray = td_thread_swap(thread, activation.prior);
    Py_XDECREF(stray.callback);
}

/* Code of ours may nest as many calls as from an empty stack, however deep the program is: it would be an error of the
 * program else that it does not have. Returns what to give back. */
int td_levels_lend(PyThreadState *tstate, TdThread *thread);
void td_levels_give_back(PyThreadState *tstate, TdThread *thread, int levels);
int td_depth_init(PyObject *module);

#define TD_OFF ((TdSetting){NULL, 0, 0, 0})

int td_unwind_init(PyObject *module); /* unwind.c */

int td_watched_init(PyObject *module); /* watched.c */

/* ---- stance.c: what torch.compiler.set_stance says --------------------------------------------------------------- */

typedef enum { TD_AS_USUAL, TD_EAGER, TD_ASK } TdStance;

extern PyObject *td_stance_names; /* the module's that has it; NULL: nobody can have set a stance yet */
extern uint64_t td_stance_tag;    /* of these, when they were last looked at; 0: they have none, look each time */
extern TdStance td_stance;
void td_stance_look(void);
int td_stance_init(PyObject *module);

static inline TdStance td_stance_now(void)
{
    uint64_t tag = td_stance_names != NULL ? td_dict_tag(td_stance_names) : td_stance_tag;
    if (TD_UNLIKELY(tag != td_stance_tag || (tag == 0 && td_stance_names != NULL)))
        td_stance_look();
    return td_stance;
}

/* ---- hook.c, swap.c --------------------------------------------------------------------------------------------- */

PyObject *td_eval_frame(PyThreadState *tstate, TdRawFrame *frame, int throwing);

int td_frame_is_awaited(TdThread *thread, TdRawFrame *frame); /* it is that of the call being made, and has what it needs */

/* See that the entry's code runs in the frame's place; steals entry and bound, closes the view. Returns TD_RUN_IT when
 * the frame is ready to be run, else the result: the frame itself is run by td_eval_frame alone, as a tail call, so that
 * deep recursion finds little of ours on the C stack. */
PyObject *td_enter_entry(PyThreadState *tstate, TdRawFrame *frame, TdFrame *view, TdEntry *entry, PyObject *bound);

/* Run the function whose frame, of an entry's code, is calling now: from its start, with the arguments it was given, and
 * with this code, its own. To whoever looks at the stack, or at a traceback, it is the one call that it is in the
 * program. */
PyObject *td_run_as_written(PyThreadState *tstate, PyCodeObject *code);

PyObject *td_with_globals(PyObject *module, PyObject *args);

extern char td_run_it;
#define TD_RUN_IT ((PyObject *)&td_run_it)

/* ---- callables ---------------------------------------------------------------------------------------------------- */

void td_show_way(PyObject *way);                            /* have it see to the traceback of the error that is set */
int td_active_init(PyObject *module);
int td_compiled_init(PyObject *module);
int td_callables_init(PyObject *module); /* callables.c */
int td_graph_init(PyObject *module);
int td_shown_init(PyObject *module);

#endif
