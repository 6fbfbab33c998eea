/* Facts about frames of CPython's versions, for the hook: included by compat.h alone. */
#ifndef TORCHDYNAMO_COMPAT_FRAMES_H
#define TORCHDYNAMO_COMPAT_FRAMES_H
#include "compat.h"

#if PY_VERSION_HEX >= 0x030B0000

typedef struct _PyInterpreterFrame TdRawFrame;

/* A slot of a frame: from 3.14 the address of an object with a bit that says whether the slot owns it. */
#if PY_VERSION_HEX >= 0x030E0000
typedef _PyStackRef TdSlot;
#define TD_SLOT_OBJECT(slot) ((PyObject *)((slot).bits & ~(uintptr_t)Py_TAG_REFCNT)) /* NULL in an empty one */
#define TD_SLOT_OWNING(object) PyStackRef_FromPyObjectSteal(object)
#define TD_SLOT_EMPTY PyStackRef_NULL
#define TD_SLOT_CLEAR(slot) PyStackRef_CLEAR(slot)
#define TD_FRAME_TOP(frame) ((frame)->stackpointer - (frame)->localsplus)
#define TD_SET_FRAME_TOP(frame, count) ((frame)->stackpointer = (frame)->localsplus + (count))
#elif PY_VERSION_HEX >= 0x030B0000
typedef PyObject *TdSlot;
#define TD_SLOT_OBJECT(slot) (slot)
#define TD_SLOT_OWNING(object) (object)
#define TD_SLOT_EMPTY NULL
#define TD_SLOT_CLEAR(slot) Py_CLEAR(slot)
#define TD_FRAME_TOP(frame) ((frame)->stacktop)
#define TD_SET_FRAME_TOP(frame, count) ((frame)->stacktop = (count))
#endif

#if PY_VERSION_HEX >= 0x030E0000
#define TD_FRAME_CODE(frame) ((PyCodeObject *)TD_SLOT_OBJECT((frame)->f_executable))
#define TD_SET_FRAME_CODE(frame, code) ((frame)->f_executable = TD_SLOT_OWNING((PyObject *)(code)))
#define TD_FRAME_FUNC(frame) TD_SLOT_OBJECT((frame)->f_funcobj)
#elif PY_VERSION_HEX >= 0x030D0000
#define TD_FRAME_CODE(frame) ((PyCodeObject *)(frame)->f_executable)
#define TD_SET_FRAME_CODE(frame, code) ((frame)->f_executable = (PyObject *)(code))
#define TD_FRAME_FUNC(frame) ((frame)->f_funcobj)
#endif
#if PY_VERSION_HEX >= 0x030D0000
#define TD_FRAME_NEXT(frame) ((frame)->instr_ptr)
#define TD_SET_FRAME_NEXT(frame, where) ((frame)->instr_ptr = (where))
#define TD_FRAME_LAST(frame) ((frame)->instr_ptr)
#define TD_SET_FRAME_LAST(frame, where) ((frame)->instr_ptr = (where))
#elif PY_VERSION_HEX >= 0x030C0000
#define TD_FRAME_CODE(frame) ((frame)->f_code)
#define TD_SET_FRAME_CODE(frame, code) ((frame)->f_code = (code))
#define TD_FRAME_FUNC(frame) ((frame)->f_funcobj)
#define TD_FRAME_NEXT(frame) ((frame)->prev_instr + 1)
#define TD_SET_FRAME_NEXT(frame, where) ((frame)->prev_instr = (where)-1)
#define TD_FRAME_LAST(frame) ((frame)->prev_instr)
#define TD_SET_FRAME_LAST(frame, where) ((frame)->prev_instr = (where))
#else
#define TD_FRAME_CODE(frame) ((frame)->f_code)
#define TD_SET_FRAME_CODE(frame, code) ((frame)->f_code = (code))
#define TD_FRAME_FUNC(frame) ((PyObject *)(frame)->f_func)
#define TD_FRAME_NEXT(frame) ((frame)->prev_instr + 1)
#define TD_SET_FRAME_NEXT(frame, where) ((frame)->prev_instr = (where)-1)
#define TD_FRAME_LAST(frame) ((frame)->prev_instr)
#define TD_SET_FRAME_LAST(frame, where) ((frame)->prev_instr = (where))
#endif

/* True when the frame has not run anything: not a generator resumed, nor one being thrown into. */
static inline int td_frame_at_start(TdRawFrame *frame, PyCodeObject *code)
{
    return TD_FRAME_NEXT(frame) == _PyCode_CODE(code) && frame->owner == FRAME_OWNED_BY_THREAD;
}

static inline Py_ssize_t td_code_framesize(PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030C0000
    return code->co_framesize;
#else
    return (Py_ssize_t)FRAME_SPECIALS_SIZE + code->co_nlocalsplus + code->co_stacksize;
#endif
}

static inline int td_frame_open(TdRawFrame *frame, TdFrame *view)
{
    view->globals = frame->f_globals;
    view->builtins = frame->f_builtins;
    view->func = TD_FRAME_FUNC(frame);
    view->code = TD_FRAME_CODE(frame);
#if PY_VERSION_HEX >= 0x030E0000
    int count = view->code->co_nlocalsplus;
    view->localsplus = count <= TD_VIEW_ROOM ? view->room : PyMem_Malloc(count * sizeof(PyObject *));
    if (view->localsplus == NULL)
        return PyErr_NoMemory(), -1;
    for (int i = 0; i < count; i++)
        view->localsplus[i] = TD_SLOT_OBJECT(frame->localsplus[i]);
#else
    view->localsplus = frame->localsplus;
#endif
    return 0;
}

static inline void td_frame_close(TdFrame *view)
{
#if PY_VERSION_HEX >= 0x030E0000
    if (view->localsplus != view->room)
        PyMem_Free(view->localsplus);
#else
    (void)view;
#endif
}

static inline int td_frame_is_call_of(TdRawFrame *frame, PyObject *func) { return TD_FRAME_FUNC(frame) == func; }

/* Make a frame that has not started one of `code`: 1 when done, 0 when there is no room for it here.
 * The frame is the last thing on the data stack, so it can grow in place. A generator's heap frame, though, is sized
 * by its function's own code, so a generator cannot grow. */
static inline int td_frame_swap(PyThreadState *tstate, TdRawFrame *frame, PyCodeObject *code, Py_ssize_t nargs)
{
    PyCodeObject *old = TD_FRAME_CODE(frame);
    PyObject **base = (PyObject **)frame;
    Py_ssize_t old_size = td_code_framesize(old), size = td_code_framesize(code);
    if (size > old_size && (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)))
        return 0;
    if (base + old_size == tstate->datastack_top) {
        if (size - old_size >= tstate->datastack_limit - tstate->datastack_top)
            return 0;
        tstate->datastack_top = base + size;
    }
    else if (size > old_size)
        return 0;
    for (Py_ssize_t i = nargs; i < code->co_nlocalsplus; i++)
        frame->localsplus[i] = TD_SLOT_EMPTY;
    TD_SET_FRAME_TOP(frame, code->co_nlocalsplus);
    TD_SET_FRAME_CODE(frame, (PyCodeObject *)Py_NewRef((PyObject *)code));
    TD_SET_FRAME_NEXT(frame, _PyCode_CODE(code));
#if PY_VERSION_HEX >= 0x030C0000
    frame->return_offset = 0;
#endif
    Py_DECREF(old);
    return 1;
}

static inline void td_frame_store(TdRawFrame *frame, Py_ssize_t slot, PyObject *value)
{
    frame->localsplus[slot] = TD_SLOT_OWNING(value);
}

/* May we end this frame without running it? Not if somebody has made a frame object of it. */
static inline int td_frame_discardable(TdRawFrame *frame) { return frame->frame_obj == NULL; }

/* End a frame that never ran. From 3.12 the evaluator frees the frame it was given; before, its caller does. */
static inline void td_frame_discard(PyThreadState *tstate, TdRawFrame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject **base = (PyObject **)frame;
    for (Py_ssize_t i = 0; i < TD_FRAME_TOP(frame); i++)
        TD_SLOT_CLEAR(frame->localsplus[i]);
    Py_XDECREF(frame->f_locals);
#if PY_VERSION_HEX >= 0x030E0000
    PyStackRef_CLOSE(frame->f_funcobj);
    PyStackRef_CLOSE(frame->f_executable);
#else
    Py_DECREF(TD_FRAME_FUNC(frame));
    Py_DECREF(TD_FRAME_CODE(frame));
#endif
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if (base != &chunk->data[0]) {
        tstate->datastack_top = base;
        return;
    }
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    _PyStackChunk *previous = chunk->previous;
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_chunk = previous;
    arena.free(arena.ctx, chunk, chunk->size);
    tstate->datastack_limit = (PyObject **)(((char *)previous) + previous->size);
#else
    (void)tstate;
    (void)frame;
#endif
}

/* The frame whose code is calling this one, and the callable and the empty slot beside it on the stack it began with. */
#if PY_VERSION_HEX >= 0x030D0000
#define TD_CALLER(tstate) ((tstate)->current_frame)
#define TD_CALLABLE_SLOT 0
#else
#define TD_CALLER(tstate) ((tstate)->cframe->current_frame)
#define TD_CALLABLE_SLOT 1
#endif

/* Where the caller keeps the arguments of this call, if it is code that has this frame's code for a constant and made the
 * call with nothing else on its stack; else NULL. Under a hook the interpreter gives arguments by reference, and drops
 * what it has on the stack when the call returns. */
static inline TdSlot *td_frame_arguments_of_caller(TdRawFrame *caller, TdRawFrame *frame, char keeps)
{
    if (caller == NULL || (caller->owner != FRAME_OWNED_BY_THREAD
                           && !(keeps == TD_STEPS_ASIDE && caller->owner == FRAME_OWNED_BY_GENERATOR)))
        return NULL;
    PyCodeObject *code = TD_FRAME_CODE(caller), *callee = TD_FRAME_CODE(frame);
    Py_ssize_t known = PyTuple_GET_SIZE(code->co_consts), count = callee->co_argcount;
    while (known > 0 && PyTuple_GET_ITEM(code->co_consts, known - 1) != (PyObject *)callee)
        known--;
    TdSlot *stack = caller->localsplus + code->co_nlocalsplus;
    if (known == 0 || code->co_stacksize < count + 2 || TD_SLOT_OBJECT(stack[TD_CALLABLE_SLOT]) != TD_FRAME_FUNC(frame)
        || TD_SLOT_OBJECT(stack[1 - TD_CALLABLE_SLOT]) != NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (TD_SLOT_OBJECT(stack[2 + i]) != TD_SLOT_OBJECT(frame->localsplus[i]))
            return NULL;
    return stack + 2;
}

/* Does anything but the frame itself hold its frame object, as a traceback does? Then its variables may still be read. */
static inline int td_frame_is_kept(TdRawFrame *frame)
{
    return frame->frame_obj != NULL && Py_REFCNT(frame->frame_obj) > 1;
}

/* Drop the frame's plain variables. Its cells stay: CPython reads a free variable's cell without looking whether it is
 * there, and this frame's successor holds the same cells. */
static inline void td_frame_drop_variables(TdRawFrame *frame)
{
    PyCodeObject *code = TD_FRAME_CODE(frame);
    for (Py_ssize_t i = 0; i < code->co_nlocalsplus; i++)
        if (!(_PyLocals_GetKind(code->co_localspluskinds, (int)i) & (CO_FAST_CELL | CO_FAST_FREE)))
            TD_SLOT_CLEAR(frame->localsplus[i]);
}

/* Take the arguments off the caller, which is done with them; where it keeps nothing, and nobody can read it, its
 * variables too: they are this frame's alone now. Returns the caller, or NULL if it may not be done. */
static inline TdRawFrame *td_frame_take_over(PyThreadState *tstate, TdRawFrame *frame, char keeps)
{
    TdRawFrame *caller = TD_CALLER(tstate);
    TdSlot *arguments = td_frame_arguments_of_caller(caller, frame, keeps);
    if (arguments == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < TD_FRAME_CODE(frame)->co_argcount; i++) {
        TdSlot argument = arguments[i];
        arguments[i] = TD_SLOT_OWNING(Py_NewRef(Py_None));
        TD_SLOT_CLEAR(argument);
    }
    if (keeps == TD_KEEPS_NOTHING && !td_frame_is_kept(caller))
        td_frame_drop_variables(caller);
    return caller;
}

/* A caller with nothing left to do is not shown below the frame that goes on in its place: whatever walks the stack, or
 * counts calls, finds each call of the program once. */
static inline void td_frame_leave_out(PyThreadState *tstate, TdRawFrame *caller)
{
    TD_CALLER(tstate) = caller->previous;
}

/* The line a frame is on, for one that has begun; before 3.12 it can be asked after it has ended. */
static inline int td_frame_line(TdRawFrame *frame)
{
    PyCodeObject *code = TD_FRAME_CODE(frame);
    return PyCode_Addr2Line(code, (int)((TD_FRAME_LAST(frame) - _PyCode_CODE(code)) * sizeof(_Py_CODEUNIT)));
}

/* It is to return now by an exception, and tracebacks pass it by, as they do a frame that has not begun: whose last
 * instruction is before the first that they count, which is after those that make its cells. A traceback that has the
 * frame already, from before, finds it on the line where all ended; 0: where it stands. */
static inline void td_frame_pass_by(TdRawFrame *frame, int line)
{
    if (frame->frame_obj != NULL)
        frame->frame_obj->f_lineno = line > 0 ? line : td_frame_line(frame);
    TD_SET_FRAME_LAST(frame, _PyCode_CODE(TD_FRAME_CODE(frame)) + TD_FRAME_CODE(frame)->_co_firsttraceable - 1);
}

static inline void td_frame_ended(PyThreadState *tstate, TdRawFrame *frame) {}

/* It is to return now, by an exception perhaps. */
static inline void td_frame_put_back(PyThreadState *tstate, TdRawFrame *caller, TdRawFrame *frame, int raised, int *line)
{
    TD_CALLER(tstate) = caller;
    if (!raised)
        return;
#if PY_VERSION_HEX < 0x030C0000
    if (!_PyFrame_IsIncomplete(frame)) /* else it was a caller itself, or another frame ran in its place */
        *line = td_frame_line(frame);
#else
    *line = 0;
#endif
    td_frame_pass_by(caller, *line);
}

/* An argument as it was passed, of a frame that has made its cells. A new reference; NULL: it is gone. */
static inline PyObject *td_frame_passed(const TdFrame *view, Py_ssize_t slot)
{
    PyObject *value = view->localsplus[slot];
    int in_cell = _PyLocals_GetKind(view->code->co_localspluskinds, (int)slot) & CO_FAST_CELL;
    return in_cell && value != NULL && PyCell_Check(value) ? PyCell_Get(value) : Py_XNewRef(value);
}

/* Whether a frame is of a Python function that runs on the thread's own stack. */
static inline int td_frame_is_plain(TdRawFrame *frame)
{
    return frame != NULL && frame->owner == FRAME_OWNED_BY_THREAD;
}

/* Stand a frame that was made for a traceback at an instruction, below another; at the first that a frame can be seen at
 * (RESUME), where the place is before it. Its free variables are empty cells: who reads its variables finds no cell
 * missing. 0, or -1 with an error. */
static inline int td_frame_stand(PyFrameObject *object, Py_ssize_t instruction, PyObject *back)
{
    TdRawFrame *frame = object->f_frame;
    PyCodeObject *code = TD_FRAME_CODE(frame);
    for (int i = 0; i < code->co_nlocalsplus; i++) {
        if (!(_PyLocals_GetKind(code->co_localspluskinds, i) & CO_FAST_FREE))
            continue;
        PyObject *cell = PyCell_New(NULL);
        if (cell == NULL)
            return -1;
        TD_SLOT_CLEAR(frame->localsplus[i]);
        frame->localsplus[i] = TD_SLOT_OWNING(cell);
    }
    TD_SET_FRAME_LAST(frame, _PyCode_CODE(code) + Py_MAX(instruction, code->_co_firsttraceable));
    object->f_back = (PyFrameObject *)Py_XNewRef(back);
    return 0;
}

static inline Py_ssize_t td_code_instructions(PyCodeObject *code) { return Py_SIZE(code); }

/* NULL stands for CPython's evaluator: another hook may leave once more than it came in. */
#define TD_NULL_EVALUATES 1
#define TD_FRAMES_ARE_SLOTS 1 /* of the thread's stack, in which one can take the place of another */
static inline void td_frame_try(PyThreadState *tstate, _PyFrameEvalFunction eval, TdRawFrame **place) {}

#else /* 3.10: a frame is a heap object of fixed size, its cells are made, and it does not know its function */

typedef PyFrameObject TdRawFrame;

#define TD_FRAME_CODE(frame) ((frame)->f_code)

static inline int td_frame_at_start(TdRawFrame *frame, PyCodeObject *code)
{
    return frame->f_lasti == -1 && frame->f_state == FRAME_CREATED && frame->f_gen == NULL;
}

/* The arguments as they were passed, and a function that holds the frame's free variables. */
static inline int td_frame_open(TdRawFrame *frame, TdFrame *view)
{
    PyCodeObject *code = frame->f_code;
    Py_ssize_t cells = PyTuple_GET_SIZE(code->co_cellvars), frees = PyTuple_GET_SIZE(code->co_freevars);
    PyObject **slots = frame->f_localsplus;
    view->func = PyFunction_New((PyObject *)code, frame->f_globals);
    view->localsplus = PyMem_Calloc(code->co_nlocals + cells + frees + 1, sizeof(PyObject *));
    PyObject *closure = frees ? PyTuple_New(frees) : NULL;
    if (view->func == NULL || view->localsplus == NULL || (frees && closure == NULL))
        goto failed;
    for (Py_ssize_t i = 0; i < code->co_nlocals; i++)
        view->localsplus[i] = slots[i];
    for (Py_ssize_t i = 0; code->co_cell2arg != NULL && i < cells; i++)
        if (code->co_cell2arg[i] != CO_CELL_NOT_AN_ARG)
            view->localsplus[code->co_cell2arg[i]] = PyCell_GET(slots[code->co_nlocals + i]);
    for (Py_ssize_t i = 0; i < frees; i++)
        PyTuple_SET_ITEM(closure, i, Py_NewRef(slots[code->co_nlocals + cells + i]));
    if (closure != NULL && PyFunction_SetClosure(view->func, closure) < 0)
        goto failed;
    Py_XDECREF(closure);
    view->globals = frame->f_globals;
    view->builtins = frame->f_builtins;
    view->code = code;
    return 0;
failed:
    Py_XDECREF(closure);
    Py_XDECREF(view->func);
    PyMem_Free(view->localsplus);
    return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
}

static inline void td_frame_close(TdFrame *view)
{
    PyMem_Free(view->localsplus);
    Py_DECREF(view->func);
}

static inline int td_frame_is_call_of(TdRawFrame *frame, PyObject *func)
{
    return (PyObject *)frame->f_code == PyFunction_GET_CODE(func);
}

static inline int td_frame_swap(PyThreadState *tstate, TdRawFrame *frame, PyCodeObject *code, Py_ssize_t nargs)
{
    return 0;
}

static inline void td_frame_store(TdRawFrame *frame, Py_ssize_t slot, PyObject *value)
{
    Py_XSETREF(frame->f_localsplus[slot], value);
}

static inline int td_frame_discardable(TdRawFrame *frame) { return 1; }
static inline void td_frame_discard(PyThreadState *tstate, TdRawFrame *frame) {}
/* What goes early on other versions goes late here, and both frames are shown. */
static inline TdRawFrame *td_frame_take_over(PyThreadState *tstate, TdRawFrame *frame, char keeps) { return NULL; }
static inline void td_frame_leave_out(PyThreadState *tstate, TdRawFrame *caller) {}
/* That a frame is not to be shown above the traceback of the error that is set is noted, and done where the frame ends. */
void td_frame_pass_by(TdRawFrame *frame, int line);
void td_frame_ended(PyThreadState *tstate, TdRawFrame *frame);
static inline void td_frame_put_back(PyThreadState *tstate, TdRawFrame *caller, TdRawFrame *frame, int raised, int *line) {}

#define TD_CALLER(tstate) ((tstate)->frame)

static inline PyObject *td_frame_passed(const TdFrame *view, Py_ssize_t slot) { return Py_XNewRef(view->localsplus[slot]); }
static inline int td_frame_is_plain(TdRawFrame *frame) { return frame != NULL && frame->f_gen == NULL; }

static inline int td_frame_stand(PyFrameObject *object, Py_ssize_t instruction, PyObject *back)
{
    object->f_lasti = (int)instruction;
    Py_XSETREF(object->f_back, (PyFrameObject *)Py_XNewRef(back));
    return 0;
}

static inline Py_ssize_t td_code_instructions(PyCodeObject *code)
{
    return PyBytes_GET_SIZE(code->co_code) / (Py_ssize_t)sizeof(_Py_CODEUNIT);
}

#define TD_NULL_EVALUATES 0
#define TD_FRAMES_ARE_SLOTS 0

/* Give an evaluator a frame that raises before its first instruction, of which tracers hear nothing. The frame is at
 * `place` meanwhile. */
static inline void td_frame_try(PyThreadState *tstate, _PyFrameEvalFunction eval, TdRawFrame **place)
{
    static PyCodeObject *code = NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int collects = PyGC_Disable();
    PyObject *globals = PyDict_New();
    if (code == NULL)
        code = PyCode_NewEmpty("<torchdynamo>", "tried", 1);
    TdRawFrame *frame = globals == NULL || code == NULL ? NULL : PyFrame_New(tstate, code, globals, NULL);
    if (frame != NULL) {
        *place = frame;
        tstate->tracing++;
        PyErr_SetNone(PyExc_RuntimeError);
        Py_XDECREF(eval(tstate, frame, 1));
        tstate->tracing--;
        *place = NULL;
    }
    Py_XDECREF((PyObject *)frame);
    Py_XDECREF(globals);
    if (collects)
        PyGC_Enable();
    PyErr_Restore(type, value, traceback);
}

#endif

#endif
