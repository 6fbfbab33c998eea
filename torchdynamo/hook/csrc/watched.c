/* Numbers of dicts, where CPython gives them none: a watcher, which is called before each write to a dict that a guard has
 * read, gives it the next one. A number is never used twice, so a dict that has one is the very dict, with all that it had. */
#include "hook.h"

#ifdef TD_DICTS_ARE_WATCHED

uint64_t td_watcher_bit = 0;
static int watcher = -1;
static uint64_t latest = 0;

static int number(PyDict_WatchEvent Py_UNUSED(event), PyObject *dict, PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value))
{
    uint64_t others = TD_DICT_FIELD(dict) & (((uint64_t)1 << TD_DICT_NUMBER_SHIFT) - 1);
    TD_DICT_FIELD(dict) = others | (++latest << TD_DICT_NUMBER_SHIFT);
    return 0;
}

void td_watch(PyObject *dict)
{
    if (watcher < 0)
        return;
    if (PyDict_Watch(watcher, dict) < 0) {
        PyErr_Clear(); /* in another interpreter, where nobody watches for us */
        return;
    }
    number(PyDict_EVENT_MODIFIED, dict, NULL, NULL);
}

int td_watched_init(PyObject *Py_UNUSED(module))
{
    watcher = PyDict_AddWatcher(number);
    if (watcher < 0)
        PyErr_Clear(); /* others have them all: keys are looked up in each call */
    else
        td_watcher_bit = (uint64_t)1 << watcher;
    return 0;
}

#else

int td_watched_init(PyObject *Py_UNUSED(module)) { return 0; }

#endif
