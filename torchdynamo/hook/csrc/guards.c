/* The type GuardProgram: guards of one entry, lowered to native steps (stub while it is being written). */
#include "native.h"

PyTypeObject *TdGuardProgram_Type = NULL;

static PyType_Slot program_slots[] = {{0, NULL}};

static PyType_Spec program_spec = {
    .name = "torchdynamo._native.GuardProgram",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = program_slots,
};

int td_program_check(PyObject *program, const TdFrame *frame, PyObject **bound)
{
    (void)program;
    (void)frame;
    *bound = NULL;
    return 1;
}

int td_guards_init(PyObject *module)
{
    TdGuardProgram_Type = (PyTypeObject *)PyType_FromSpec(&program_spec);
    if (TdGuardProgram_Type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "GuardProgram", (PyObject *)TdGuardProgram_Type);
}
