/* The extension module torchdynamo._native: what it was built for, and its parts. */
#include "hook.h"

#ifndef TD_TORCH_VERSION
#define TD_TORCH_VERSION ""
#endif

int td_hook_init(PyObject *module)
{
    int failed = td_depth_init(module) < 0 || td_unwind_init(module) < 0 || td_thread_init(module) < 0 || td_active_init(module) < 0 || td_entry_init(module) < 0 || td_state_init(module) < 0 || td_frame_init(module) < 0
                 || td_compiled_init(module) < 0 || td_graph_init(module) < 0;
    return failed ? -1 : 0;
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
    int failed = PyModule_AddStringConstant(module, "TORCH_VERSION", TD_TORCH_VERSION) < 0
                 || PyModule_AddStringConstant(module, "PYTHON_VERSION", PY_VERSION) < 0
                 || td_guards_init(module) < 0 || td_hook_init(module) < 0;
#ifndef TD_HOOK_ONLY
    failed = failed || td_tensor_init(module) < 0;
#endif
    if (failed) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
