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

/* What a caller needs once the code runs that goes on for it: nothing; its variables; these, and it is not shown meanwhile. */
enum { TD_KEEPS_NOTHING = 1, TD_KEEPS_LOCALS = 2, TD_STEPS_ASIDE = 3 };

#if PY_VERSION_HEX < 0x030A0000 || PY_VERSION_HEX >= 0x030F0000
#error "torchdynamo needs CPython 3.10 to 3.14"
#endif
#if defined(Py_GIL_DISABLED) && (!defined(TD_FREE_THREADED) || PY_VERSION_HEX < 0x030D0000 || PY_VERSION_HEX >= 0x030E0000)
#error "torchdynamo does not support free-threaded CPython; of 3.13, there is a build to try it with: docs/support.md"
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
#else
#include <internal/pycore_runtime.h>
#endif
#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_setobject.h>
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#endif

#include "compat_threads.h"
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

/* What co_extra points to: private to codeobject.c, and the same from 3.6 to 3.14. */
typedef struct {
    Py_ssize_t size;
    void *slots[1];
} TdCodeExtra;

static inline void *td_code_extra(PyCodeObject *code, Py_ssize_t index)
{
    TdCodeExtra *extra = (TdCodeExtra *)code->co_extra;
    return extra != NULL && extra->size > index ? extra->slots[index] : NULL;
}

#include "compat_frames.h"

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

/* The same for calls in C, which 3.12 and 3.13 count by themselves. */
static inline void td_c_levels_add(PyThreadState *tstate, int levels)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    tstate->c_recursion_remaining += levels;
#else
    (void)tstate;
    (void)levels;
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

/* In 3.12 and 3.13 the evaluator counts calls that nest on the C stack, and each frame that a hook passes on is one; true
 * when half of those allowed are used up. Others look how much of the stack there is, as we do. */
static inline int td_c_calls_are_many(const PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030E0000
    (void)tstate;
    return 0;
#elif PY_VERSION_HEX >= 0x030D0000
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
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
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

#if PY_VERSION_HEX >= 0x030E0000
#define TD_BRANCH_TOOLS(tools) ((tools)[PY_MONITORING_EVENT_BRANCH_LEFT] | (tools)[PY_MONITORING_EVENT_BRANCH_RIGHT])
#else
#define TD_BRANCH_TOOLS(tools) ((tools)[PY_MONITORING_EVENT_BRANCH])
#endif

static inline int td_lines_are_monitored(const uint8_t *tools)
{
    return (tools[PY_MONITORING_EVENT_LINE] | tools[PY_MONITORING_EVENT_INSTRUCTION] | tools[PY_MONITORING_EVENT_JUMP]
            | TD_BRANCH_TOOLS(tools)) & TD_OWN_TOOLS;
}
#endif

#if PY_VERSION_HEX >= 0x030E0000
/* Tools that were let go of since this code last ran: what they asked for there is cleared when it runs again. */
static inline int td_tools_gone(const PyInterpreterState *interp, const _PyCoMonitoringData *here)
{
    int gone = 0;
    for (int tool = 0; tool < PY_MONITORING_TOOL_IDS; tool++)
        gone |= (here->tool_versions[tool] != interp->monitoring_tool_versions[tool]) << tool;
    return gone;
}
#elif PY_VERSION_HEX >= 0x030C0000
#define td_tools_gone(interp, here) 0
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
    return here != NULL && ((td_lines_are_monitored(here->local_monitors.tools)
                             | (here->local_monitors.tools[PY_MONITORING_EVENT_PY_START] & TD_LINE_TOOLS))
                            & ~td_tools_gone(tstate->interp, here));
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

/* time.perf_counter_ns() */
static inline int64_t td_nanoseconds(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyTime_t now;
    return PyTime_PerfCounterRaw(&now) < 0 ? 0 : now;
#else
    return _PyTime_GetPerfCounter();
#endif
}

#include "compat_dicts.h"

#endif
