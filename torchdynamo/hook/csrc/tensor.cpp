// Packed tensor metadata and global state: the only file that includes torch's headers (stub while it is being written).
#include "native.h"

extern "C" int td_tensor_init(PyObject *module)
{
    (void)module;
    return 0;
}
