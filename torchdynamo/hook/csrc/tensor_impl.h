/* The implementation of a tensor, as far as its fields can be read in C++: for the files that include torch's headers. */
#ifndef TORCHDYNAMO_TENSOR_IMPL_H
#define TORCHDYNAMO_TENSOR_IMPL_H
#include "tensor.h" // first: it says how Python.h is to be read

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>

using c10::DispatchKey;
using c10::TensorImpl;

static inline const TensorImpl *impl_of(PyObject *obj) { return THPVariable_Unpack(obj).unsafeGetTensorImpl(); }

// A subclass with __torch_dispatch__ may answer for its device, layout and sizes in Python: those are not asked.
static inline bool answers_in_python(const TensorImpl *impl) { return impl->key_set().has(DispatchKey::Python); }

static inline bool has_plain_sizes(const TensorImpl *impl)
{
    return !impl->has_symbolic_sizes_strides() && !impl->key_set().has(DispatchKey::NestedTensor);
}

// Its elements lie in one piece of memory, by sizes and strides.
static inline bool is_plain(const TensorImpl *impl)
{
    return !answers_in_python(impl) && has_plain_sizes(impl) && impl->layout() == c10::kStrided && impl->has_storage();
}

// Where the first element of such a tensor lies.
static inline const void *address_of(const TensorImpl *impl)
{
    const char *start = (const char *)impl->unsafe_storage().unsafeGetStorageImpl()->data();
    return start + impl->storage_offset() * (int64_t)impl->itemsize();
}

#endif
