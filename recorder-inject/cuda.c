#include "cuda.h"

#include <dlfcn.h>
#include <string.h>

#include "inject.h"

static struct cuda_driver driver;
static _Atomic(const struct cuda_driver *) found;
static _Atomic bool looking;

static const struct {
    const char *symbol;
    size_t member;
} functions[] = {
#define X(member, symbol, params) {symbol, offsetof(struct cuda_driver, member)},
    CUDA_FUNCTIONS(X)
#undef X
};

const struct cuda_driver *cuda_driver(void)
{
    return atomic_load_explicit(&found, memory_order_acquire);
}

void cuda_look_for_driver(void)
{
    if (options.gpu == GPU_OFF || cuda_driver())
        return;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    /* Who comes second goes on without; the next new stream looks again. */
    if (!library || atomic_exchange_explicit(&looking, true, memory_order_acquire))
        return;
    bool complete = true;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = real_dlsym(library, functions[i].symbol);
        memcpy((char *)&driver + functions[i].member, &function, sizeof(function));
        complete &= function != NULL;
    }
    if (complete)
        atomic_store_explicit(&found, &driver, memory_order_release);
    else
        verbose("libcuda.so.1 is too old: GPU progress is not recorded");
    /* An incomplete driver stays so: looking stays set. */
    if (complete)
        atomic_store_explicit(&looking, false, memory_order_release);
}
