/* The extension module torchdynamo._native: what it was built for, and its parts. */
#include "hook.h"

#ifndef TD_TORCH_VERSION
#define TD_TORCH_VERSION ""
#endif

/* One row for each file that adds something to the module. */
static int (*const parts[])(PyObject *) = {
    td_watched_init,
    td_depth_init,
    td_unwind_init,
    td_thread_init,
    td_active_init,
    td_entry_init,
    td_state_init,
    td_entries_init,
    td_frame_init,
    td_compiled_init,
    td_graph_init,
    td_shown_init,
    td_stance_init,
    td_callables_init,
};

int td_hook_init(PyObject *module)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i](module) < 0)
            return -1;
    return 0;
}

static struct PyModuleDef native_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "torchdynamo._native",
    .m_doc = "The native half of torchdynamo: the frame hook and the guard programs.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&native_module);
    if (module == NULL)
        return NULL;
    int failed = td_needs_no_lock(module) < 0
                 || PyModule_AddStringConstant(module, "TORCH_VERSION", TD_TORCH_VERSION) < 0
                 || PyModule_AddStringConstant(module, "PYTHON_VERSION", PY_VERSION) < 0
                 || td_guards_init(module) < 0 || td_hook_init(module) < 0;
#ifndef TD_HOOK_ONLY
    failed = failed || td_tensor_init(module) < 0 || td_aliasing_init(module) < 0 || td_versions_init(module) < 0 ||
             td_global_state_init(module) < 0 || td_kernels_init(module) < 0 || td_recordings_init(module) < 0 ||
             td_replay_init(module) < 0 || td_replays_init(module) < 0;
#endif
    if (failed) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
