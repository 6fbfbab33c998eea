/* Stopping all other threads, in builds of CPython without the global interpreter lock.
 *
 * CPython does that for itself only, but for one function: that which goes through all objects. It is asked for the first,
 * and told to stop. */
#include "hook.h"

#ifdef Py_GIL_DISABLED

PyObject td_shared;

typedef struct {
    int (*what)(void *);
    void *argument;
    int answer, done;
} Errand;

static _Thread_local int alone_now = 0;

static int run_errand(PyObject *Py_UNUSED(object), void *argument)
{
    Errand *errand = argument;
    if (!errand->done) {
        errand->done = alone_now = 1;
        errand->answer = errand->what(errand->argument);
        alone_now = 0;
    }
    return 0;
}

int td_alone(int (*what)(void *), void *argument)
{
    if (alone_now)
        return what(argument);
    Errand errand = {what, argument, 0, 0};
    PyUnstable_GC_VisitObjects(run_errand, &errand);
    while (TD_UNLIKELY(!errand.done)) { /* all objects are frozen, by gc.freeze() */
        PyObject *another = PyList_New(0);
        if (another == NULL)
            return -1;
        PyUnstable_GC_VisitObjects(run_errand, &errand);
        Py_DECREF(another);
    }
    return errand.answer;
}

#endif
