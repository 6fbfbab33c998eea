// Replay a recording: copy inputs in, launch, and hand results out.
#include "replays.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/inductor/inductor_ops.h>

#include <dlfcn.h>

using namespace td;

PyObject *td::names[TD_NAMES];

// ---- How it is replayed, from Python ------------------------------------------------------------------------------

bool td::read_positions(PyObject *list, Positions &into)
{
    THPObjectPtr items(PySequence_Fast(list, "expected positions"));
    for (Py_ssize_t i = 0; items && i < PySequence_Fast_GET_SIZE(items.get()); i++)
        into.push_back(PyLong_AsSsize_t(PySequence_Fast_GET_ITEM(items.get(), i)));
    return items && !PyErr_Occurred();
}

bool td::read_tensors(PyObject *list, Tensors &into)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        if (!td_is_tensor(PyList_GET_ITEM(list, i)))
            return PyErr_SetString(PyExc_TypeError, "expected tensors"), false;
        into.push_back(THPVariable_Unpack(PyList_GET_ITEM(list, i)));
    }
    return true;
}

namespace {
bool read_groups(PyObject *list, std::vector<Group> &into)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *positions, *tensors;
        into.emplace_back();
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "OO!", &positions, &PyList_Type, &tensors) ||
            !read_positions(positions, into.back().positions) || !read_tensors(tensors, into.back().tensors))
            return false;
    }
    return true;
}

bool read_pairs(PyObject *list, std::vector<std::pair<Py_ssize_t, Py_ssize_t>> &into)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        Py_ssize_t one, other;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "nn", &one, &other))
            return false;
        into.emplace_back(one, other);
    }
    return true;
}

bool read_views(PyObject *list, std::vector<View> &into)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *sizes, *strides;
        long long offset;
        View view;
        Positions dims[2];
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "nnOOL", &view.at, &view.position, &sizes, &strides, &offset) ||
            !read_positions(sizes, dims[0]) || !read_positions(strides, dims[1]))
            return false;
        view.sizes.assign(dims[0].begin(), dims[0].end());
        view.strides.assign(dims[1].begin(), dims[1].end());
        view.offset = offset;
        into.push_back(std::move(view));
    }
    return true;
}

bool read_places(PyObject *list, std::vector<Place> &into)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *launch, *lender;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "OO", &launch, &lender) || in<Lender>(lender) == nullptr)
            return false;
        into.emplace_back();
        into.back().launch = Py_NewRef(launch);
        into.back().lender = Py_NewRef(lender);
    }
    return true;
}

bool read_lent(PyObject *positions, PyObject *lender, Lent &into)
{
    if (lender == Py_None)
        return true;
    into.lender = Py_NewRef(lender);
    return in<Lender>(lender) != nullptr && read_positions(positions, into.positions);
}

// ---- Replaying it -------------------------------------------------------------------------------------------------

// CUDA's own copy, which torch's takes several times as long to call; NULL: this torch does not share its runtime.
using CudaCopy = int (*)(void *to, const void *from, size_t bytes, int kind, void *stream);
const int DEVICE_TO_DEVICE = 3;

CudaCopy cuda_copy()
{
    static const CudaCopy found = (CudaCopy)dlsym(RTLD_DEFAULT, "cudaMemcpyAsync");
    return found;
}

bool is_one_piece(const at::Tensor &each)
{
    return each.is_cuda() && each.is_contiguous() && !each.is_conj() && !each.is_neg() && each.layout() == c10::kStrided;
}

// False: torch has to copy it, or to raise what keeps it from being copied.
bool copied_as_it_lies(const at::Tensor &to, const at::Tensor &from, uint64_t stream)
{
    if (!is_one_piece(to) || !is_one_piece(from) || to.dtype() != from.dtype() || to.device() != from.device() ||
        to.sizes() != from.sizes() || cuda_copy() == nullptr)
        return false;
    return cuda_copy()(to.data_ptr(), from.data_ptr(), to.nbytes(), DEVICE_TO_DEVICE, (void *)stream) == 0;
}

} // namespace

void td::copy_all(const Tensors &to, const Tensors &from, uint64_t stream)
{
    pybind11::gil_scoped_release no_gil;
    if (to.size() == 1 && copied_as_it_lies(to[0], from[0], stream))
        return;
    at::AutoDispatchBelowADInplaceOrView below; // memory of ours, of which autograd knows nothing
    if (to.size() == 1)
        to[0].copy_(from[0]);
    else
        at::_foreach_copy_(to, from);
}

namespace {
// Slots have each element of an expanded input once.
at::Tensor as_wide_as(at::Tensor input, const at::Tensor &slot)
{
    for (int64_t dim = 0; dim < slot.dim(); dim++)
        if (input.size(dim) != slot.size(dim))
            input = input.narrow(dim, 0, slot.size(dim));
    return input;
}

void copy_in(Take &take, PyObject *const *inputs)
{
    for (const Group &group : take.moving) {
        Tensors from;
        for (size_t i = 0; i < group.tensors.size(); i++)
            from.push_back(as_wide_as(THPVariable_Unpack(inputs[group.positions[i]]), group.tensors[i]));
        copy_all(group.tensors, from, take.stream);
    }
}

bool put(PyObject *results, Py_ssize_t at, at::Tensor tensor)
{
    PyObject *made = THPVariable_Wrap(std::move(tensor));
    return made != nullptr && PyList_SetItem(results, at, made) == 0;
}

bool copy_out(Take &take, PyObject *results)
{
    for (const Group &group : take.copied) {
        Tensors made;
        for (const at::Tensor &each : group.tensors)
            made.push_back(at::empty_strided(each.sizes(), each.strides(), each.options()));
        copy_all(made, group.tensors, take.stream);
        for (size_t i = 0; i < made.size(); i++)
            if (!put(results, group.positions[i], std::move(made[i])))
                return false;
    }
    return true;
}

// NULL: somebody has results in all of them.
Place *free_place(Take &take)
{
    for (Place &place : take.places)
        if (place.lease == nullptr || !is_used(*place.lease))
            return &place;
    return nullptr;
}

bool hand_out_place(Take &take, Place &place, PyObject *results, PyObject *keeper)
{
    Tensors made;
    place.lease = lend_to(*in<Lender>(place.lender.get()), keeper, made);
    size_t next = 0;
    for (const Group &group : take.copied)
        for (Py_ssize_t at : group.positions)
            if (!put(results, at, std::move(made[next++])))
                return false;
    return true;
}

// The lease, Py_None if nothing is lent, or NULL with an error set.
PyObject *hand_out(Lent &lent, PyObject *results, PyObject *keeper)
{
    if (!lent.lender)
        return Py_NewRef(Py_None);
    Tensors made;
    THPObjectPtr lease(in_capsule(lend_to(*in<Lender>(lent.lender.get()), keeper, made)));
    for (size_t i = 0; lease && i < made.size(); i++)
        if (!put(results, lent.positions[i], std::move(made[i])))
            return nullptr;
    return lease.release();
}

bool hand_out_inputs(Take &take, PyObject *const *inputs, PyObject *results)
{
    for (auto [at, position] : take.inputs)
        if (PyList_SetItem(results, at, Py_NewRef(inputs[position])) < 0)
            return false;
    for (const View &view : take.views) {
        const at::Tensor &base = THPVariable_Unpack(inputs[view.position]);
        if (!put(results, view.at, torch::inductor::_reinterpret_tensor(base, view.sizes, view.strides, view.offset)))
            return false;
    }
    return true;
}

void count_versions(const Positions &counted, PyObject *const *inputs)
{
    for (Py_ssize_t at : counted)
        if (!THPVariable_Unpack(inputs[at]).is_inference())
            THPVariable_Unpack(inputs[at]).unsafeGetTensorImpl()->bump_version();
}

// Tell the lane what of its memory is in use from now on.
bool note_leases(Take &take, PyObject *recording, PyObject *lane, PyObject *lent, PyObject *saved)
{
    if (lent != Py_None) {
        THPObjectPtr leases(PyObject_GetAttr(lane, names[LENT]));
        if (!leases || PyObject_SetItem(leases, take.order, lent) < 0)
            return false;
    }
    return !take.is_forward || (PyObject_SetAttr(lane, names[FORWARD], recording) == 0 &&
                                PyObject_SetAttr(lane, names[SAVED], saved) == 0);
}

// Python does the rest: recording.finish(inputs, results).
bool finish(PyObject *recording, PyObject *const *inputs, Py_ssize_t count, PyObject *results)
{
    THPObjectPtr list(PyList_New(count));
    for (Py_ssize_t at = 0; list && at < count; at++)
        PyList_SET_ITEM(list.get(), at, Py_NewRef(inputs[at]));
    THPObjectPtr done(list ? PyObject_CallMethodObjArgs(recording, names[FINISH], list.get(), results, NULL) : nullptr);
    return (bool)done;
}
} // namespace

PyObject *td::replayed(Take &take, PyObject *recording, PyObject *lane, PyObject *const *inputs, Py_ssize_t count)
{
    c10::AutoGradMode no_grad(false);
    copy_in(take, inputs);
    if (!point(take.pointers, inputs, take.stream))
        return nullptr;
    Place *place = free_place(take);
    THPObjectPtr launched(PyObject_CallNoArgs(place != nullptr ? place->launch : take.launch));
    take.pointers.next += (bool)launched;
    THPObjectPtr results(launched ? PyList_GetSlice(take.results, 0, PyList_GET_SIZE(take.results.get())) : nullptr);
    if (!results)
        return nullptr;
    count_versions(take.counted, inputs);
    if (!(place != nullptr ? hand_out_place(take, *place, results, recording) : copy_out(take, results)) ||
        !hand_out_inputs(take, inputs, results))
        return nullptr;
    THPObjectPtr lent(hand_out(take.lent, results, recording));
    THPObjectPtr saved(lent ? hand_out(take.saved, results, recording) : nullptr);
    if (!saved || !note_leases(take, recording, lane, lent, saved))
        return nullptr;
    if (take.has_rest && !finish(recording, inputs, count, results))
        return nullptr;
    for (auto [at, other] : take.same)
        if (PyList_SetItem(results, at, Py_NewRef(PyList_GET_ITEM(results.get(), other))) < 0)
            return nullptr;
    return results.release();
}

// take(layout, launch, moving, pointers, counted, results, copied, places, (lent, lender), (saved, saver), inputs, views, same, stream,
//      order, is_forward, has_rest, follows_forward)
static PyObject *take(PyObject *, PyObject *args)
{
    HANDLE_TH_ERRORS
    PyObject *layout, *launch, *moving, *pointers, *counted, *results, *copied, *places, *lent, *lender, *saved, *saver;
    PyObject *inputs, *views, *same, *order;
    unsigned long long stream;
    int is_forward, has_rest, follows_forward;
    auto made = std::make_unique<Take>();
    if (!PyArg_ParseTuple(args, "OOO!OOO!O!O!(OO)(OO)O!O!O!KO!ppp:take", &layout, &launch, &PyList_Type, &moving,
                          &pointers, &counted, &PyList_Type, &results, &PyList_Type, &copied, &PyList_Type, &places, &lent, &lender, &saved,
                          &saver, &PyList_Type, &inputs, &PyList_Type, &views, &PyList_Type, &same, &stream,
                          &PyLong_Type, &order, &is_forward, &has_rest, &follows_forward))
        return nullptr;
    if (in<InputLayout>(layout) == nullptr || !read_groups(moving, made->moving) ||
        !read_pointers(pointers, made->pointers) || !read_positions(counted, made->counted) ||
        !read_groups(copied, made->copied) || !read_places(places, made->places) || !read_lent(lent, lender, made->lent) ||
        !read_lent(saved, saver, made->saved) || !read_pairs(inputs, made->inputs) || !read_views(views, made->views) ||
        !read_pairs(same, made->same))
        return nullptr;
    made->layout = Py_NewRef(layout);
    made->launch = Py_NewRef(launch);
    made->results = Py_NewRef(results);
    made->order = Py_NewRef(order);
    made->stream = stream;
    made->is_forward = is_forward;
    made->has_rest = has_rest;
    made->follows_forward = follows_forward;
    return in_capsule(std::move(made));
    END_HANDLE_TH_ERRORS
}

static PyObject *replay(PyObject *, PyObject *const *args, Py_ssize_t nargs)
{
    HANDLE_TH_ERRORS
    if (nargs != 2 || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "replay takes a recording and a list of inputs");
    THPObjectPtr holder(PyObject_GetAttr(args[0], names[TAKE]));
    THPObjectPtr lane(holder ? PyObject_GetAttr(args[0], names[LANE]) : nullptr);
    Take *take = lane ? in<Take>(holder) : nullptr;
    Py_ssize_t count = PyList_GET_SIZE(args[1]);
    if (take == nullptr)
        return nullptr;
    if (fit(*in<InputLayout>(take->layout.get()), ((PyListObject *)args[1])->ob_item, count, nullptr) != Fit::YES)
        return PyErr_Format(PyExc_ValueError, "these inputs are not those that were recorded");
    return replayed(*take, args[0], lane, ((PyListObject *)args[1])->ob_item, count);
    END_HANDLE_TH_ERRORS
}

static PyMethodDef replay_functions[] = {
    {"take", take, METH_VARARGS,
     "take(layout, launch, moving, pointers, counted, results, copied, places, lent, saved, inputs, views, same, stream,\n"
     "order, is_forward, has_rest, follows_forward) -> how a recording is replayed, as its attribute `take`."},
    {"replay", (PyCFunction)(void (*)(void))replay, METH_FASTCALL,
     "replay(recording, inputs) -> its results. Raises ValueError if it was recorded for others."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int td_replay_init(PyObject *module)
{
    const char *texts[] = {"take", "lane", "retired", "saved", "lent", "abandoned", "forward", "finish"};
    for (int i = 0; i < TD_NAMES; i++)
        if ((names[i] = PyUnicode_InternFromString(texts[i])) == nullptr)
            return -1;
    return PyModule_AddFunctions(module, replay_functions);
}
