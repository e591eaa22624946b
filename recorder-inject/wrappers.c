/*
 * One exported wrapper per row of nccl-api.def: look up the real function, decide whether to
 * record, open the op, call NCCL, close the op. What a role opens and closes stands below, as a
 * pair of macros; data ops are inlined, the rest is in calls.c.
 */
#include "calls.h"

#include "callsite/callsite.h"

enum { NONE = -1 };

/* Which calls are recorded with their line of code: those that ranks wait for each other in. */
#define SITE_COLL(...)          true
#define SITE_P2P(...)           true
#define SITE_RMA(...)           true
#define SITE_WAIT(...)          true
#define SITE_CALL(...)          false
#define SITE_TEARDOWN(...)      true
#define SITE_INIT(...)          true
#define SITE_INIT_ALL(...)      true
#define SITE_SPLIT(...)         true
#define SITE_SHRINK(...)        true
#define SITE_GROW(...)          true
#define SITE_RELEASE(...)       true
#define SITE_ASYNC_ERROR(...)   false
#define SITE_GROUP_START()      false
#define SITE_GROUP_END(...)     (thread->group_depth <= 1)
#define SITE_REDOP_CREATE(...)  false
#define SITE_REDOP_DESTROY(...) false

#define OPEN_COLL(kind, count, datatype, redop, root, comm, stream)                                          \
    struct call call;                                                                                        \
    coll_open(thread, &call, REC_##kind, count, (unsigned)(datatype), (int)(redop), root, comm, stream);
#define CLOSE_COLL(...) stream_op_close(thread, &call, result);

#define OPEN_P2P(kind, count, datatype, peer, comm, stream)                                                  \
    struct call call;                                                                                        \
    p2p_open(thread, &call, REC_##kind, count, (unsigned)(datatype), peer, comm, stream);
#define CLOSE_P2P(...) stream_op_close(thread, &call, result);

#define OPEN_RMA(kind, count, datatype, peer, signal, comm, stream)                                          \
    struct call call;                                                                                        \
    rma_open(thread, &call, REC_##kind, count, (unsigned)(datatype), peer, signal, comm, stream);
#define CLOSE_RMA(...) stream_op_close(thread, &call, result);

#define OPEN_WAIT(n, descriptions, comm, stream)                                                             \
    struct call call;                                                                                        \
    rma_open(thread, &call, REC_WAIT_SIGNAL, wait_signal_count(n, descriptions), REC_DTYPE_NONE,             \
             wait_signal_peer(n, descriptions), wait_signal_id(n, descriptions), comm, stream);
#define CLOSE_WAIT(n, descriptions, ...) wait_close(thread, &call, n, descriptions, result);

#define OPEN_CALL(kind, comm, count, peer)                                                                   \
    struct call call;                                                                                        \
    call_open(thread, &call, REC_##kind, comm, count, peer);
#define CLOSE_CALL(...) op_close(thread, &call, result);

#define OPEN_TEARDOWN(kind, comm) OPEN_CALL(kind, comm, 0, NONE)
#define CLOSE_TEARDOWN(...)       op_close(thread, &call, result);

#define OPEN_INIT(kind, out, nranks, id, rank, settings)                                                     \
    struct call call;                                                                                        \
    init_open(thread, &call, copy, REC_##kind, nranks, id, rank, settings);
#define CLOSE_INIT(kind, out, ...) init_close(thread, &call, out, result);

#define OPEN_INIT_ALL(out, ndev, devices)                                                                    \
    struct call call;                                                                                        \
    init_all_open(thread, &call, copy, ndev, devices);
#define CLOSE_INIT_ALL(out, ndev, devices) init_all_close(thread, &call, out, ndev, result);

#define OPEN_SPLIT(comm, color, key, out, settings)                                                          \
    struct child child;                                                                                      \
    split_open(thread, &child, comm, color, key);
#define CLOSE_SPLIT(comm, color, key, out, settings) child_close(thread, &child, out, settings, result);

#define OPEN_SHRINK(comm, excluded, count, out, settings, flags)                                             \
    struct child child;                                                                                      \
    shrink_open(thread, &child, comm, excluded, count, flags);
#define CLOSE_SHRINK(comm, excluded, count, out, settings, flags)                                            \
    child_close(thread, &child, out, settings, result);

#define OPEN_GROW(comm, nranks, id, rank, out, settings)                                                     \
    struct child child;                                                                                      \
    grow_open(thread, &child, copy, comm, nranks, id, rank, settings);
#define CLOSE_GROW(comm, nranks, id, rank, out, settings)                                                    \
    grow_close(thread, &child, comm, out, settings, result);

#define OPEN_RELEASE(kind, comm)                                                                             \
    struct call call;                                                                                        \
    release_open(thread, &call, REC_##kind, comm);
#define CLOSE_RELEASE(kind, comm) release_close(thread, &call, comm, result);

#define OPEN_ASYNC_ERROR(comm, error)                                                                        \
    struct call call;                                                                                        \
    async_error_open(thread, &call);
#define CLOSE_ASYNC_ERROR(comm, error) async_error_close(thread, &call, comm, error, result);

#define OPEN_GROUP_START()  group_start_open(thread);
#define CLOSE_GROUP_START() group_start_close(thread, result);

#define OPEN_GROUP_END(kind)                                                                                 \
    struct call call;                                                                                        \
    group_end_open(thread, &call, REC_##kind);
#define CLOSE_GROUP_END(kind) group_end_close(thread, &call, result);

#define OPEN_REDOP_CREATE(op, scalar, datatype, residence, comm)                                             \
    OPEN_CALL(RED_OP_CREATE_PRE_MUL_SUM, comm, 0, NONE)
#define CLOSE_REDOP_CREATE(op, scalar, datatype, residence, comm)                                            \
    redop_create_close(thread, &call, op, scalar, datatype, residence, result);

#define OPEN_REDOP_DESTROY(op, comm)                                                                         \
    OPEN_CALL(RED_OP_DESTROY, comm, 0, NONE)                                                                 \
    redop_destroyed(call.comm, (int)(op));
#define CLOSE_REDOP_DESTROY(...) op_close(thread, &call, result);

#define WRAPPER(which, visible, wrapper, api, params, args, role)                                            \
    visible ncclResult_t wrapper params;                                                                     \
    visible ncclResult_t wrapper params                                                                      \
    {                                                                                                        \
        enum { copy = which };                                                                               \
        typedef ncclResult_t real_fn params;                                                                 \
        real_fn *real = (real_fn *)(uintptr_t)real_function(copy, api);                                      \
        if (unlikely(!real))                                                                                 \
            return ncclInvalidUsage;                                                                         \
        struct thread *thread = &self_thread;                                                                \
        if (unlikely(!call_admit(thread, __builtin_return_address(0))))                                      \
            return real args;                                                                                \
        thread->callsite =                                                                                   \
            SITE_##role ? callsite_capture_from(__builtin_return_address(0), __builtin_frame_address(0))     \
                        : 0;                                                                                 \
        OPEN_##role;                                                                                         \
        ncclResult_t result = real args;                                                                     \
        CLOSE_##role;                                                                                        \
        return result;                                                                                       \
    }

/* The exported ones belong to copy 0; each further libnccl has a set of its own. */
#define NCCL_API(name, since, params, args, role) WRAPPER(0, PUBLIC, name, API_##name, params, args, role)
#include "nccl-api.def"
#undef NCCL_API
#define NCCL_API(name, since, params, args, role) WRAPPER(1, static, name##_1, API_##name, params, args, role)
#include "nccl-api.def"
#undef NCCL_API
#define NCCL_API(name, since, params, args, role) WRAPPER(2, static, name##_2, API_##name, params, args, role)
#include "nccl-api.def"
#undef NCCL_API
#define NCCL_API(name, since, params, args, role) WRAPPER(3, static, name##_3, API_##name, params, args, role)
#include "nccl-api.def"
#undef NCCL_API
_Static_assert(REAL_COPIES == 4, "one set of wrappers per copy");

void *wrapper_address(unsigned copy, enum api api)
{
    typedef void function(void);
    static function *const wrappers[API_COUNT][REAL_COPIES] = {
#define NCCL_API(name, since, params, args, role)                                                            \
    [API_##name] = {(function *)name, (function *)name##_1, (function *)name##_2, (function *)name##_3},
#include "nccl-api.def"
#undef NCCL_API
    };
    return (void *)(uintptr_t)wrappers[api][copy];
}
