// What compiled kernels and the Python code that calls them need of torch: memory, views, and checks of layouts.
#include "tensor_impl.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided_ops.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/inductor/inductor_ops.h>

#include <stdexcept>
#include <string>

namespace {
using Dims = c10::SmallVector<int64_t, 8>;

// Called by kernels on their arguments. They catch the exception and raise it.
void *data_pointer(PyObject *obj)
{
    if (obj == nullptr || !td_is_tensor(obj))
        throw std::runtime_error("a kernel was called with something that is no tensor");
    return THPVariable_Unpack(obj).data_ptr();
}

// False: an error is set.
bool read_dims(PyObject *tuple, Dims &dims)
{
    if (!PyTuple_CheckExact(tuple)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of sizes or strides");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        dims.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
        if (dims.back() == -1 && PyErr_Occurred())
            return false;
    }
    return true;
}

bool takes_tensor(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t least, Py_ssize_t most)
{
    if (nargs >= least && nargs <= most && td_is_tensor(args[0]))
        return true;
    PyErr_SetString(PyExc_TypeError, "expected a tensor and what is said of it");
    return false;
}

std::string name_at(PyObject *const *args, Py_ssize_t nargs, Py_ssize_t at)
{
    const char *name = nargs > at && PyUnicode_Check(args[at]) ? PyUnicode_AsUTF8(args[at]) : nullptr;
    if (name == nullptr)
        PyErr_Clear();
    return name == nullptr ? "tensor" : name;
}

std::string text_of(c10::IntArrayRef dims)
{
    std::string text = "(";
    for (int64_t dim : dims)
        text += std::to_string(dim) + ", ";
    return text + ")";
}
} // namespace

static PyObject *tensor_data_pointer(PyObject *, PyObject *) { return PyLong_FromVoidPtr((void *)data_pointer); }

// allocate: makes the tensor from sizes, strides and a dtype.
template <typename Allocate> static PyObject *empty_strided(PyObject *const *args, Py_ssize_t nargs, Allocate allocate)
{
    HANDLE_TH_ERRORS
    Dims sizes, strides;
    if (nargs != 3 || !THPDtype_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "expected sizes, strides and a dtype");
        return nullptr;
    }
    if (!read_dims(args[0], sizes) || !read_dims(args[1], strides))
        return nullptr;
    return THPVariable_Wrap(allocate(sizes, strides, reinterpret_cast<THPDtype *>(args[2])->scalar_type));
    END_HANDLE_TH_ERRORS
}

static PyObject *empty_strided_cpu(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    return empty_strided(args, nargs, [](const Dims &sizes, const Dims &strides, c10::ScalarType dtype) {
        return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype));
    });
}

// On the current GPU. The kernel is called past all modes; a build of torch without CUDA has none, and raises.
static PyObject *empty_strided_cuda(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    return empty_strided(args, nargs, [](const Dims &sizes, const Dims &strides, c10::ScalarType dtype) {
        return at::_ops::empty_strided::redispatch(c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                   c10::fromIntArrayRefSlow(sizes), c10::fromIntArrayRefSlow(strides),
                                                   dtype, std::nullopt, c10::Device(c10::kCUDA), std::nullopt);
    });
}

static PyObject *reinterpret_tensor(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    Dims sizes, strides;
    if (!takes_tensor(args, nargs, 3, 4) || !read_dims(args[1], sizes) || !read_dims(args[2], strides))
        return nullptr;
    int64_t offset = nargs == 4 ? PyLong_AsLongLong(args[3]) : 0;
    if (offset == -1 && PyErr_Occurred())
        return nullptr;
    return THPVariable_Wrap(torch::inductor::_reinterpret_tensor(THPVariable_Unpack(args[0]), sizes, strides, offset));
    END_HANDLE_TH_ERRORS
}

static PyObject *assert_size_stride(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    Dims sizes, strides;
    if (!takes_tensor(args, nargs, 3, 4) || !read_dims(args[1], sizes) || !read_dims(args[2], strides))
        return nullptr;
    const at::Tensor &tensor = THPVariable_Unpack(args[0]);
    bool equal = tensor.dim() == (int64_t)sizes.size() && sizes.size() == strides.size();
    if (equal && tensor.numel() == 0) // of an unknown size: there is nothing to stride over
        Py_RETURN_TRUE;
    for (size_t i = 0; equal && i < sizes.size(); i++)
        equal = tensor.size(i) == sizes[i] && (sizes[i] <= 1 || tensor.stride(i) == strides[i]);
    if (equal)
        Py_RETURN_TRUE;
    std::string text = name_at(args, nargs, 3) + ": expected sizes " + text_of(sizes) + " and strides " +
                       text_of(strides) + ", and got " + text_of(tensor.sizes()) + " and " + text_of(tensor.strides());
    PyErr_SetString(PyExc_AssertionError, text.c_str());
    return nullptr;
    END_HANDLE_TH_ERRORS
}

static PyObject *assert_alignment(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (!takes_tensor(args, nargs, 2, 3))
        return nullptr;
    const at::Tensor &tensor = THPVariable_Unpack(args[0]);
    int64_t alignment = PyLong_AsLongLong(args[1]);
    if (alignment <= 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "an alignment is a positive number of bytes");
        return nullptr;
    }
    if (tensor.storage_offset() * (int64_t)tensor.itemsize() % alignment == 0)
        Py_RETURN_TRUE;
    std::string text = name_at(args, nargs, 2) + ": expected memory aligned to " + std::to_string(alignment) +
                       " bytes, and got an offset of " + std::to_string(tensor.storage_offset()) + " elements";
    PyErr_SetString(PyExc_AssertionError, text.c_str());
    return nullptr;
    END_HANDLE_TH_ERRORS
}

#define TD_FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static PyMethodDef kernel_functions[] = {
    {"tensor_data_pointer", tensor_data_pointer, METH_NOARGS,
     "tensor_data_pointer() -> int: the address of `void *f(PyObject *tensor)`, which returns where its data is."},
    {"empty_strided_cpu", TD_FAST(empty_strided_cpu), "empty_strided_cpu(sizes, strides, dtype) -> tensor"},
    {"empty_strided_cuda", TD_FAST(empty_strided_cuda),
     "empty_strided_cuda(sizes, strides, dtype) -> tensor on the current GPU"},
    {"reinterpret_tensor", TD_FAST(reinterpret_tensor),
     "reinterpret_tensor(tensor, sizes, strides, offset=0) -> tensor in the same memory, and no view to autograd"},
    {"assert_size_stride", TD_FAST(assert_size_stride),
     "assert_size_stride(tensor, sizes, strides, name=...) -> True. Raises AssertionError where the layout differs."},
    {"assert_alignment", TD_FAST(assert_alignment),
     "assert_alignment(tensor, bytes, name=...) -> True. Raises AssertionError if its offset is no multiple."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_kernels_init(PyObject *module) { return PyModule_AddFunctions(module, kernel_functions); }
