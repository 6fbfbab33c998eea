/* Inputs and results of recorded CUDA graphs: what recordings.cpp and replays.cpp share. */
#ifndef TORCHDYNAMO_RECORDINGS_H
#define TORCHDYNAMO_RECORDINGS_H
#include "tensor_impl.h"

#include <torch/csrc/utils/object_ptr.h>

#include <memory>
#include <vector>

namespace td {
using Dims = c10::SmallVector<int64_t, 6>;

// ---- C++ objects that Python holds ----------------------------------------------------------------------------------

template <typename T> void destroy(PyObject *capsule) { delete (T *)PyCapsule_GetPointer(capsule, typeid(T).name()); }

template <typename T> PyObject *in_capsule(std::unique_ptr<T> made)
{
    PyObject *capsule = PyCapsule_New(made.get(), typeid(T).name(), destroy<T>);
    if (capsule != nullptr)
        made.release();
    return capsule;
}

// NULL with an error set: the object is no such capsule.
template <typename T> T *in(PyObject *capsule) { return (T *)PyCapsule_GetPointer(capsule, typeid(T).name()); }

// ---- Inputs -------------------------------------------------------------------------------------------------------

struct Input {
    enum { TENSOR, NUMBER, OBJECT } kind = OBJECT;
    bool fixed = false;            // its address is part of the recording
    uint16_t dims = 0;             // of a tensor
    uint32_t begin = 0;            // of its sizes among the numbers of the layout; its strides follow
    const void *address = nullptr; // of a tensor; of another object itself, owned
    const void *storage = nullptr; // of a tensor when it was recorded; only to have it at hand
    c10::DispatchKeySet keys;      // of a tensor
    int64_t number = 0;
};

struct InputLayout {
    std::vector<Input> inputs;
    std::vector<int64_t> numbers;
    uint64_t places = 0;    // the number of addresses for which inputs fit, from `placed` on; 0: none
    Py_ssize_t placed = 0;
    ~InputLayout();
};

enum class Fit { NO, MOVED, YES };

// MOVED: it would fit, but for inputs at other addresses, which are added to `moved` unless that is NULL.
Fit fit(const InputLayout &layout, PyObject *const *values, Py_ssize_t count, std::vector<Py_ssize_t> *moved);

// The same for inputs of a call, of which those that guards have just seen are looked at only where they have moved.
Fit fit_again(InputLayout &layout, PyObject *const *values, Py_ssize_t count, const TdPlaced &seen);

// ---- Results ------------------------------------------------------------------------------------------------------

struct Memory {
    void *start;
    size_t bytes;
    c10::Device device;
};

struct Result {
    size_t memory; // which
    caffe2::TypeMeta dtype;
    int64_t offset;
    bool conjugate, negative;
    Dims sizes, strides;
};

struct Lender {
    std::vector<Memory> memories;
    std::vector<Result> results;
};

using Lease = std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;

// Tensors in a lender's memory, which keep `keeper` alive, and a lease that tells whose memory is in use.
std::unique_ptr<Lease> lend_to(const Lender &from, PyObject *keeper, std::vector<at::Tensor> &tensors);

bool is_used(const Lease &lease);
} // namespace td

#endif
