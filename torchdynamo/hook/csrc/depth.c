/* How deep calls may nest.
 *
 * CPython runs a call of one Python function by another without a call in C; with a hook in, each takes some of the C
 * stack, and a recursion that Python allows would end in a crash. So where half of the stack is used up, frames run with
 * the hook out, at CPython's own price. */
#define _GNU_SOURCE
#include <pthread.h>

#include "hook.h"

TD_THREAD_LOCAL TdStack td_stack = {0, UINTPTR_MAX};

/* Ask where the thread's stack ends; where that is not known, it has no end. */
static void stack_measure(void)
{
    td_stack = (TdStack){0, 0};
#ifdef __GLIBC__
    pthread_attr_t attributes;
    void *end;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &end, &size) == 0)
        td_stack = (TdStack){(uintptr_t)end, size / 2};
    pthread_attr_destroy(&attributes);
#endif
}

int td_stack_has(size_t bytes)
{
    (void)td_stack_is_half_used();
    uintptr_t left = (uintptr_t)__builtin_frame_address(0) - td_stack.end;
    return td_stack.reserve == 0 || left > 2 * td_stack.reserve || left >= bytes;
}

int td_stack_is_half_used(void)
{
    if (td_stack.reserve == UINTPTR_MAX)
        stack_measure();
    return td_stack_is_short();
}

int td_levels_lend(PyThreadState *tstate, TdThread *thread)
{
    if (thread->lent) /* what is lent is used up in the end, or an endless recursion would find none */
        return 0;
    int levels = td_levels_used(tstate);
    td_levels_add(tstate, levels);
    thread->lent = levels > 0;
    return levels;
}

void td_levels_give_back(PyThreadState *tstate, TdThread *thread, int levels)
{
    if (levels > 0) {
        td_levels_add(tstate, -levels);
        thread->lent = 0;
    }
}

PyDoc_STRVAR(more_levels_doc,
             "more_levels(levels, /)\n--\n\n"
             "Let this thread nest so many more calls than sys.getrecursionlimit() says; a negative number takes them back.");

static PyObject *more_levels(PyObject *module, PyObject *number)
{
    long levels = PyLong_AsLong(number);
    if (levels == -1 && PyErr_Occurred())
        return NULL;
    td_levels_add(PyThreadState_Get(), (int)levels);
    td_c_levels_add(PyThreadState_Get(), (int)levels);
    Py_RETURN_NONE;
}

static PyMethodDef depth_functions[] = {
    {"more_levels", more_levels, METH_O, more_levels_doc},
    {NULL},
};

int td_depth_init(PyObject *module) { return PyModule_AddFunctions(module, depth_functions); }
