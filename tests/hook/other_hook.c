/* Somebody else's frame evaluator, for the tests: counts frames and passes them to whoever was there before it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000
typedef struct _PyInterpreterFrame Frame;
#else
typedef PyFrameObject Frame;
#endif

static _PyFrameEvalFunction before = NULL;
static long frames = 0;

static PyObject *evaluate(PyThreadState *tstate, Frame *frame, int throwing)
{
    frames++;
    return before(tstate, frame, throwing);
}

long other_hook_frames(void) { return frames; }

int other_hook_is_in(void) { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate; }

/* The way torch does it: in if not in, on top of whatever is there. */
void other_hook_enter(void)
{
    if (other_hook_is_in())
        return;
    before = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluate);
}

/* Back to what was there before, whoever is there now. */
void other_hook_leave(void) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), before); }
