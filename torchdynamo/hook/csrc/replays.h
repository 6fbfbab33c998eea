/* A recording as it is replayed: what replay.cpp and replays.cpp share. */
#ifndef TORCHDYNAMO_REPLAYS_H
#define TORCHDYNAMO_REPLAYS_H
#include "recordings.h"

namespace td {
using Tensors = std::vector<at::Tensor>;
using Positions = std::vector<Py_ssize_t>;

// Tensors of one dtype, which are copied by one kernel.
struct Group {
    Positions positions;
    Tensors tensors;
};

struct View {
    Py_ssize_t at, position; // of the result, of the input
    Dims sizes, strides;
    int64_t offset;
};

struct Lent {
    Positions positions;
    THPObjectPtr lender; // NULL: there are none
};

// Memory of a recording's own, to which one capture writes the results that are copied otherwise.
struct Place {
    THPObjectPtr launch, lender;
    std::unique_ptr<Lease> lease; // of its latest results; NULL: there were none
};

// Inputs that the recording copies to its slots itself. A launch reads where they lie from a row of its own of `addresses`.
struct Pointers {
    Positions positions; // empty: there are none
    Tensors slots;
    at::Tensor addresses, begun; // int64, of the host: rows by turns; of each input, how many launches have read
    uintptr_t width = 1;         // of a word in bytes: addresses are multiples
    int64_t next = 0, free = 0;  // launches so far; how many there may be until somebody looks again who has begun
    THPObjectPtr wait;           // waits for all launches
};

struct Take {
    THPObjectPtr layout, launch, results, order;
    std::vector<Group> moving, copied;
    Pointers pointers;
    std::vector<Place> places;
    Lent lent, saved;
    std::vector<View> views;
    std::vector<std::pair<Py_ssize_t, Py_ssize_t>> inputs, same; // (result, input), (result, result that it is)
    Positions counted;
    bool is_forward, has_rest, follows_forward;
    uint64_t stream;
};

// Names of attributes of recordings and their lanes.
enum { TAKE, LANE, RETIRED, SAVED, LENT, ABANDONED, FORWARD, FINISH, TD_NAMES };
extern PyObject *names[TD_NAMES];

// False: an error is set.
bool read_positions(PyObject *list, Positions &into);
bool read_tensors(PyObject *list, Tensors &into);
bool read_pointers(PyObject *given, Pointers &into);

// Copies of tensors of one dtype, by one kernel.
void copy_all(const Tensors &to, const Tensors &from, uint64_t stream);

// Write down where inputs lie for the next launch, which counts when it has succeeded. False: an error is set.
bool point(Pointers &pointers, PyObject *const *inputs, uint64_t stream);

// The results, a list, of a recording for inputs that fit. NULL: an error is set.
PyObject *replayed(Take &take, PyObject *recording, PyObject *lane, PyObject *const *inputs, Py_ssize_t count);
} // namespace td

#endif
