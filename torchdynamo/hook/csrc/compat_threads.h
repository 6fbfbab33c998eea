/* What stands in for the global interpreter lock where there is none: included by compat.h alone.
 *
 * What we keep for the process is read and changed in sections, one at a time. Like the lock, a section is given up where
 * the thread waits or is stopped, so what is in it may change in any call that could have let other threads run. What belongs
 * to the program, guards read with all other threads stopped, each at a place where it could have lost the lock: so nothing
 * they read is changed or freed under their eyes. With the lock, all of this comes to nothing. */
#ifndef TORCHDYNAMO_COMPAT_THREADS_H
#define TORCHDYNAMO_COMPAT_THREADS_H
#include "compat.h"

#ifdef Py_GIL_DISABLED

extern PyObject td_shared; /* only its lock is used */

/* Around statements without a `return`. */
#define TD_SHARED_BEGIN { PyCriticalSection td_section; PyCriticalSection_Begin(&td_section, &td_shared);
#define TD_SHARED_END PyCriticalSection_End(&td_section); }

/* Call it while no other thread of the interpreter runs. It must call no code of the program's, and nothing that waits. */
int td_alone(int (*what)(void *), void *argument);

/* May getters of others be called then? They may wait for a lock of theirs, whose owner is stopped. */
#define TD_CALLS_WHILE_ALONE 0

/* May what was seen at one such time be gone at the next, though no code ran in between? */
#define TD_OTHERS_RUN_BETWEEN 1

#define TD_COUNT(number) __atomic_fetch_add(&(number), 1, __ATOMIC_RELAXED)

static inline int td_needs_no_lock(PyObject *module)
{
    return PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
}

#else

#define TD_SHARED_BEGIN {
#define TD_SHARED_END }

static inline __attribute__((always_inline)) int td_alone(int (*what)(void *), void *argument) { return what(argument); }

#define TD_CALLS_WHILE_ALONE 1
#define TD_OTHERS_RUN_BETWEEN 0

#define TD_COUNT(number) ((number)++)

/* How often another thread than the last one has got the lock: no other has run while this is the same. */
static inline unsigned long td_thread_turns(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyInterpreterState_Get()->ceval.gil->switch_number;
#else
    return _PyRuntime.ceval.gil.switch_number;
#endif
}

static inline int td_needs_no_lock(PyObject *module)
{
    (void)module;
    return 0;
}

#endif

/* The same function, in a section. */
#define TD_SHARED_FUNCTION(name, parameters, arguments) \
    static PyObject *name##_shared parameters           \
    {                                                   \
        PyObject *result;                               \
        TD_SHARED_BEGIN                                 \
        result = name arguments;                        \
        TD_SHARED_END                                   \
        return result;                                  \
    }

#endif
