// A range in the trace of torch's profiler, and in NVTX's where that listens.
#include "tensor.h"

#include <ATen/record_function.h>

extern "C" int td_is_profiled(void) { return at::hasCallbacks(); }

extern "C" void *td_range_begin(const char *name)
{
    auto *range = new at::RecordFunction(at::RecordScope::USER_SCOPE);
    range->before(std::string_view(name));
    return range;
}

extern "C" void td_range_end(void *range) { delete static_cast<at::RecordFunction *>(range); }
