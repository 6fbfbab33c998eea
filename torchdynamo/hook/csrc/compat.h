/* Every fact about a CPython version that the hook rests on. C only: g++ does not take CPython's internal headers. */
#ifndef TORCHDYNAMO_COMPAT_H
#define TORCHDYNAMO_COMPAT_H
#define PY_SSIZE_T_CLEAN
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TD_KEEPS_NOTHING = 1, TD_KEEPS_LOCALS = 2 }; /* what a caller needs once a continuation runs */

#if PY_VERSION_HEX < 0x030A0000 || PY_VERSION_HEX >= 0x030E0000
#error "torchdynamo needs CPython 3.10 to 3.13"
#endif
#ifdef Py_GIL_DISABLED
#error "torchdynamo does not support free-threaded CPython"
#endif

#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_code.h>
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_object.h>
#include <opcode.h>
#endif
#if PY_VERSION_HEX >= 0x030C0000
#include <internal/pycore_interp.h>
#endif
#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_setobject.h>
#endif

#include "native.h"

#define TD_LIKELY(x) __builtin_expect(!!(x), 1)
#define TD_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- The extra slot of code objects -------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030C0000
#define TD_REQUEST_EXTRA PyUnstable_Eval_RequestCodeExtraIndex
#define TD_SET_EXTRA PyUnstable_Code_SetExtra
#else
#define TD_REQUEST_EXTRA _PyEval_RequestCodeExtraIndex
#define TD_SET_EXTRA _PyCode_SetExtra
#endif

/* What co_extra points to: private to codeobject.c, and the same from 3.6 to 3.13. */
typedef struct {
    Py_ssize_t size;
    void *slots[1];
} TdCodeExtra;

static inline void *td_code_extra(PyCodeObject *code, Py_ssize_t index)
{
    TdCodeExtra *extra = (TdCodeExtra *)code->co_extra;
    return extra != NULL && extra->size > index ? extra->slots[index] : NULL;
}

/* ---- Frames ---------------------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030B0000

typedef struct _PyInterpreterFrame TdRawFrame;

#if PY_VERSION_HEX >= 0x030D0000
#define TD_FRAME_CODE(frame) ((PyCodeObject *)(frame)->f_executable)
#define TD_SET_FRAME_CODE(frame, code) ((frame)->f_executable = (PyObject *)(code))
#define TD_FRAME_FUNC(frame) ((frame)->f_funcobj)
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
    view->localsplus = frame->localsplus;
    view->globals = frame->f_globals;
    view->builtins = frame->f_builtins;
    view->func = TD_FRAME_FUNC(frame);
    view->code = TD_FRAME_CODE(frame);
    return 0;
}

static inline void td_frame_close(TdFrame *view) { (void)view; }

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
        frame->localsplus[i] = NULL;
    frame->stacktop = code->co_nlocalsplus;
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
    frame->localsplus[slot] = value;
}

/* May we end this frame without running it? Not if somebody has made a frame object of it. */
static inline int td_frame_discardable(TdRawFrame *frame) { return frame->frame_obj == NULL; }

/* End a frame that never ran. From 3.12 the evaluator frees the frame it was given; before, its caller does. */
static inline void td_frame_discard(PyThreadState *tstate, TdRawFrame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject **base = (PyObject **)frame;
    for (int i = 0; i < frame->stacktop; i++)
        Py_XDECREF(frame->localsplus[i]);
    Py_XDECREF(frame->f_locals);
    Py_DECREF(TD_FRAME_FUNC(frame));
    Py_DECREF(TD_FRAME_CODE(frame));
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
static inline PyObject **td_frame_arguments_of_caller(TdRawFrame *caller, TdRawFrame *frame)
{
    if (caller == NULL || caller->owner != FRAME_OWNED_BY_THREAD)
        return NULL;
    PyCodeObject *code = TD_FRAME_CODE(caller), *callee = TD_FRAME_CODE(frame);
    Py_ssize_t known = PyTuple_GET_SIZE(code->co_consts), count = callee->co_argcount;
    while (known > 0 && PyTuple_GET_ITEM(code->co_consts, known - 1) != (PyObject *)callee)
        known--;
    PyObject **stack = caller->localsplus + code->co_nlocalsplus;
    if (known == 0 || code->co_stacksize < count + 2 || stack[TD_CALLABLE_SLOT] != TD_FRAME_FUNC(frame)
        || stack[1 - TD_CALLABLE_SLOT] != NULL
        || memcmp(stack + 2, frame->localsplus, count * sizeof(PyObject *)) != 0)
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
            Py_CLEAR(frame->localsplus[i]);
}

/* Take the arguments off the caller, which is done with them; where it keeps nothing, and nobody can read it, its
 * variables too: they are this frame's alone now. Returns the caller, or NULL if it may not be done. */
static inline TdRawFrame *td_frame_take_over(PyThreadState *tstate, TdRawFrame *frame, char keeps)
{
    TdRawFrame *caller = TD_CALLER(tstate);
    PyObject **arguments = td_frame_arguments_of_caller(caller, frame);
    if (arguments == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < TD_FRAME_CODE(frame)->co_argcount; i++)
        Py_SETREF(arguments[i], Py_NewRef(Py_None));
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

/* An argument as it was passed, of a frame that has made its cells. Borrowed; NULL: it is gone. */
static inline PyObject *td_frame_passed(const TdFrame *view, Py_ssize_t slot)
{
    PyObject *value = view->localsplus[slot];
    int in_cell = _PyLocals_GetKind(view->code->co_localspluskinds, (int)slot) & CO_FAST_CELL;
    return in_cell && value != NULL && PyCell_Check(value) ? PyCell_GET(value) : value;
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
        Py_XSETREF(frame->localsplus[i], cell);
    }
    TD_SET_FRAME_LAST(frame, _PyCode_CODE(code) + Py_MAX(instruction, code->_co_firsttraceable));
    object->f_back = (PyFrameObject *)Py_XNewRef(back);
    return 0;
}

static inline Py_ssize_t td_code_instructions(PyCodeObject *code) { return Py_SIZE(code); }

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
static inline void td_frame_pass_by(TdRawFrame *frame, int line) {}
static inline void td_frame_put_back(PyThreadState *tstate, TdRawFrame *caller, TdRawFrame *frame, int raised, int *line) {}

#define TD_CALLER(tstate) ((tstate)->frame)

static inline PyObject *td_frame_passed(const TdFrame *view, Py_ssize_t slot) { return view->localsplus[slot]; }
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

#endif

/* ---- Running a frame ------------------------------------------------------------------------------------------- */

/* Calls of Python functions that a thread may still nest, and how many in all; before 3.12 calls of C that count, too. */
#if PY_VERSION_HEX >= 0x030C0000
#define TD_LEVELS_LEFT(tstate) ((tstate)->py_recursion_remaining)
#define TD_LEVELS(tstate) ((tstate)->py_recursion_limit)
#elif PY_VERSION_HEX >= 0x030B0000
#define TD_LEVELS_LEFT(tstate) ((tstate)->recursion_remaining)
#define TD_LEVELS(tstate) ((tstate)->recursion_limit)
#endif

/* Let the thread nest so many more calls than it may, or fewer again. */
static inline void td_levels_add(PyThreadState *tstate, int levels)
{
#if PY_VERSION_HEX >= 0x030B0000
    TD_LEVELS_LEFT(tstate) += levels;
#else
    tstate->recursion_depth -= levels;
#endif
}

/* How many calls are nested now. */
static inline int td_levels_used(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030B0000
    return TD_LEVELS(tstate) - TD_LEVELS_LEFT(tstate);
#else
    return tstate->recursion_depth;
#endif
}

/* From 3.12 the evaluator counts calls that nest on the C stack, and each frame that a hook passes on is one; true when
 * half of those allowed are used up. */
static inline int td_c_calls_are_many(const PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030D0000
    return tstate->c_recursion_remaining < Py_C_RECURSION_LIMIT / 2;
#elif PY_VERSION_HEX >= 0x030C0000
    return tstate->c_recursion_remaining < C_RECURSION_LIMIT / 2;
#else
    (void)tstate;
    return 0;
#endif
}

/* It counts two where it takes one; giving one back lets code under a hook recurse as deep as the default limit of Python
 * allows. */
static inline PyObject *td_eval(_PyFrameEvalFunction eval, PyThreadState *tstate, TdRawFrame *frame, int throwing)
{
#if PY_VERSION_HEX >= 0x030C0000
    tstate->c_recursion_remaining++;
    PyObject *result = eval(tstate, frame, throwing);
    tstate->c_recursion_remaining--;
    return result;
#else
    return eval(tstate, frame, throwing);
#endif
}

/* ---- Tracers --------------------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030C0000
/* Of the tools of sys.monitoring, those behind sys.settrace and sys.setprofile are asked for by thread. */
#define TD_OWN_TOOLS (~(1 << PY_MONITORING_SYS_PROFILE_ID | 1 << PY_MONITORING_SYS_TRACE_ID))
#define TD_LINE_TOOLS (1 << PY_MONITORING_DEBUGGER_ID | 1 << PY_MONITORING_COVERAGE_ID)

static inline int td_lines_are_monitored(const uint8_t *tools)
{
    return (tools[PY_MONITORING_EVENT_LINE] | tools[PY_MONITORING_EVENT_INSTRUCTION] | tools[PY_MONITORING_EVENT_JUMP]
            | tools[PY_MONITORING_EVENT_BRANCH]) & TD_OWN_TOOLS;
}
#endif

/* Does somebody want to see each line of this code run? A debugger and coverage do; a profiler, which looks at calls
 * alone, does not. A debugger or coverage tool of sys.monitoring asks for lines once it has seen code start. */
static inline int td_lines_are_watched(const PyThreadState *tstate, const PyCodeObject *code)
{
    if (tstate->c_tracefunc != NULL)
        return 1;
#if PY_VERSION_HEX >= 0x030C0000
    const uint8_t *tools = tstate->interp->monitors.tools;
    if (td_lines_are_monitored(tools) || tools[PY_MONITORING_EVENT_PY_START] & TD_LINE_TOOLS)
        return 1;
    const _PyCoMonitoringData *here = code->_co_monitoring;
    return here != NULL && (td_lines_are_monitored(here->local_monitors.tools)
                            || here->local_monitors.tools[PY_MONITORING_EVENT_PY_START] & TD_LINE_TOOLS);
#else
    return 0;
#endif
}

/* ---- Code objects ---------------------------------------------------------------------------------------------- */

/* Flags that decide how a call makes its frame; the others only speak to the compiler. */
#define TD_FLAGS_OF_A_CALL \
    (CO_OPTIMIZED | CO_NEWLOCALS | CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE \
     | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR)

/* Does the code copy in its free variables and make its cells, as CPython's compiler has it do? Without that, the
 * first use of one is a crash. NULL, or what is missing. */
static inline const char *td_code_prologue_fault(PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    _Py_CODEUNIT *next = _PyCode_CODE(code), *end = next + Py_SIZE(code);
    int cells = 0, frees = 0, generator = 0;
    for (; next < end; next++) {
#if PY_VERSION_HEX >= 0x030C0000
        int op = next->op.code, arg = next->op.arg;
#else
        int op = _Py_OPCODE(*next), arg = _Py_OPARG(*next);
#endif
        if (op == COPY_FREE_VARS)
            frees += arg;
        else if (op == MAKE_CELL)
            cells++;
        else if (op == RETURN_GENERATOR)
            generator = 1;
        else if (op != EXTENDED_ARG && !(generator && op == POP_TOP))
            break;
    }
    if (frees != code->co_nfreevars)
        return "it does not begin by copying its free variables";
    if (cells != code->co_ncellvars)
        return "it does not begin by making its cells";
    if (generator != ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0))
        return "it does not begin as its generator flag says";
#endif
    return NULL;
}

/* ---- Guards: dicts, instances, classes ------------------------------------------------------------------------- */

/* A number that changes whenever the dict does, and is never used again; 0 where there is none to trust. In 3.13 a write
 * to the values that an instance keeps in itself, and shares with its dict, does not touch it. */
static inline uint64_t td_dict_tag(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030D0000
    return ((PyDictObject *)dict)->ma_values == NULL ? ((PyDictObject *)dict)->ma_version_tag : 0;
#elif PY_VERSION_HEX >= 0x030C0000
    _Py_COMP_DIAG_PUSH
    _Py_COMP_DIAG_IGNORE_DEPR_DECLS
    return ((PyDictObject *)dict)->ma_version_tag;
    _Py_COMP_DIAG_POP
#else
    return ((PyDictObject *)dict)->ma_version_tag;
#endif
}

/* Where that number is, after what makes it count; how many places. */
#define TD_TAG_PLACES 2
static inline int td_dict_tag_places(PyObject *dict, const void **places)
{
    int n = 0;
#if PY_VERSION_HEX >= 0x030D0000
    places[n++] = &((PyDictObject *)dict)->ma_values;
#endif
    places[n++] = &((PyDictObject *)dict)->ma_version_tag;
    return n;
}

/* For a dict without such a number, whose keys are shared: while these places hold what they hold, in this order, each
 * key has the slot it has, and no other key has one. How many there are; 0: not such a dict. */
#define TD_SPLIT_PLACES 3
static inline int td_dict_split(PyObject *dict, const void **places)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyDictObject *split = (PyDictObject *)dict;
    if (split->ma_values == NULL)
        return 0;
    places[0] = &split->ma_values;
    places[1] = &split->ma_keys;
    places[2] = &split->ma_keys->dk_nentries;
    return TD_SPLIT_PLACES;
#else
    (void)dict;
    (void)places;
    return 0;
#endif
}

/* The slot of a name in such a dict, NULL in it where it has no value; or NULL: the keys do not have the name. */
static inline PyObject **td_dict_split_slot(PyObject *dict, PyObject *name)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyDictObject *split = (PyDictObject *)dict;
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(split->ma_keys);
    for (Py_ssize_t i = 0; i < split->ma_keys->dk_nentries; i++)
        if (entries[i].me_key == name || PyUnicode_Compare(entries[i].me_key, name) == 0)
            return &split->ma_values->values[i];
#else
    (void)dict;
    (void)name;
#endif
    return NULL;
}

/* The same for what a class and its bases define; 0: look again. */
static inline uint64_t td_type_tag(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030D0000
    return type->tp_version_tag;
#else
    return type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? type->tp_version_tag : 0;
#endif
}

/* Are all keys of the dict known to be exact strings? Then looking one up calls nobody's __eq__. 3.10 does not tell. */
static inline int td_dict_is_plain(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030B0000
    return ((PyDictObject *)dict)->ma_keys->dk_kind != DICT_KEYS_GENERAL;
#else
    (void)dict;
    return 0;
#endif
}

/* The next item of a dict, borrowed, with the hash its key had when it was put in; 0: there is none. */
static inline int td_dict_next(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value, Py_hash_t *hash)
{
#if PY_VERSION_HEX >= 0x030D0000
    if (!PyDict_Next(dict, position, key, value))
        return 0;
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    *hash = td_dict_is_plain(dict) ? ((PyASCIIObject *)*key)->hash : DK_ENTRIES(keys)[*position - 1].me_hash;
    return 1;
#else
    return _PyDict_Next(dict, position, key, value, hash);
#endif
}

/* A search for the keys of one hash. */
typedef struct {
    size_t at, perturb;
} TdProbe;

static inline TdProbe td_probe_start(Py_hash_t hash)
{
#if PY_VERSION_HEX >= 0x030B0000
    return (TdProbe){(size_t)hash, (size_t)hash};
#else
    (void)hash;
    return (TdProbe){0, 0};
#endif
}

/* The next item of a dict whose key had this hash when it was put in, borrowed; 0: there is none. Goes the way that a
 * lookup goes through the dict's table, calls nobody's __eq__, and goes on after a key that another would equal. 3.10,
 * which does not show the table, looks at each item. */
static inline int td_probe_next(PyObject *dict, TdProbe *probe, Py_hash_t hash, PyObject **key, PyObject **value)
{
#if PY_VERSION_HEX >= 0x030B0000
    PyDictObject *self = (PyDictObject *)dict;
    PyDictKeysObject *keys = self->ma_keys;
    size_t mask = (size_t)DK_SIZE(keys) - 1;
    for (;;) {
        size_t slot = probe->at & mask;
        int log_size = DK_LOG_SIZE(keys);
        Py_ssize_t index = log_size < 8    ? ((const int8_t *)keys->dk_indices)[slot]
                           : log_size < 16 ? ((const int16_t *)keys->dk_indices)[slot]
                           : log_size < 32 ? ((const int32_t *)keys->dk_indices)[slot]
                                           : (Py_ssize_t)((const int64_t *)keys->dk_indices)[slot];
        if (index == DKIX_EMPTY)
            return 0;
        probe->perturb >>= 5; /* PERTURB_SHIFT of dictobject.c */
        probe->at = slot * 5 + probe->perturb + 1;
        if (index < 0)
            continue;
        Py_hash_t found;
        if (keys->dk_kind == DICT_KEYS_GENERAL) {
            PyDictKeyEntry *entry = &DK_ENTRIES(keys)[index];
            *key = entry->me_key, *value = entry->me_value, found = entry->me_hash;
        } else {
            PyDictUnicodeEntry *entry = &DK_UNICODE_ENTRIES(keys)[index];
            *key = entry->me_key, *value = entry->me_value;
            found = *key != NULL ? ((PyASCIIObject *)*key)->hash : -1;
            if (self->ma_values != NULL)
                *value = self->ma_values->values[index];
        }
        if (found == hash && *value != NULL)
            return 1;
    }
#else
    Py_ssize_t position = (Py_ssize_t)probe->at;
    Py_hash_t found;
    while (td_dict_next(dict, &position, key, value, &found))
        if (found == hash) {
            probe->at = (size_t)position;
            return 1;
        }
    return 0;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000 && !defined(MANAGED_DICT_OFFSET) /* 3.12 has the place, but no name for it */
#define MANAGED_DICT_OFFSET (((Py_ssize_t)sizeof(PyObject *)) * -3)
#endif

/* Where an instance has its dict, or NULL; never makes one. In 3.12 the low bit says that it is not a dict. */
static inline PyObject **td_instance_dict_place(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
#if PY_VERSION_HEX >= 0x030B0000
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT)
        return (PyObject **)((char *)obj - 3 * sizeof(PyObject *));
#endif
    if (type->tp_dictoffset > 0)
        return (PyObject **)((char *)obj + type->tp_dictoffset);
    return type->tp_dictoffset == 0 ? NULL : _PyObject_GetDictPtr(obj);
}

/* The instance's dict if it is there now (borrowed). */
static inline PyObject *td_instance_dict(PyObject *obj)
{
    PyObject **place = td_instance_dict_place(obj);
    return place == NULL || ((uintptr_t)*place & 1) ? NULL : *place;
}

/* What a weakref refers to (borrowed), or None. */
static inline PyObject *td_weak_target(PyObject *weak)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *target;
    if (PyWeakref_GetRef(weak, &target) != 1)
        return Py_None;
    Py_DECREF(target); /* somebody else has it: weakrefs are cleared before their object goes */
    return target;
#else
    return PyWeakref_GET_OBJECT(weak);
#endif
}

/* A collection would run finalizers, so what allocates while guards are checked is done with it off. From 3.12 on
 * collections wait for the evaluator anyway. */
static inline int td_gc_pause(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return 0;
#else
    return PyGC_Disable();
#endif
}

static inline void td_gc_resume(int was_on)
{
    if (was_on)
        PyGC_Enable();
}

/* The order of an OrderedDict, which its dict part knows nothing of: private to odictobject.c, and the same from 3.5
 * to 3.13. */
typedef struct TdOrderedNode {
    PyObject *key;
    Py_hash_t hash;
    struct TdOrderedNode *next;
} TdOrderedNode;

typedef struct {
    PyDictObject dict;
    TdOrderedNode *first;
} TdOrderedDict;

#endif
