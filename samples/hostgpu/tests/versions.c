/* versions LIBRARY VERSION TABLE: the library speaks as that release: exports what it had and nothing newer,
 * and reads no more of a configuration than it knew. */
#include "../nccl/compat.h"
#include "harness.h"

#include <dlfcn.h>
#include <string.h>

static void *library;
static int version;

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fprintf(stderr, "%s: missing\n", name);
    CHECK(found);
    return found;
}

/* A preloaded tool may put itself in front, but must not make up what the library lacks. */
static bool is_interposed(void *weak, void *strong)
{
    Dl_info by, in;
    return dladdr(weak, &by) && dladdr(strong, &in) && by.dli_fbase != in.dli_fbase;
}

static int check_exports(const char *table)
{
    char line[256], name[128], plain[132];
    int since, rows = 0;
    FILE *file = fopen(table, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#')
            continue;
        CHECK(sscanf(line, "%d %127s", &since, name) == 2);
        snprintf(plain, sizeof plain, "p%s", name);
        void *weak = dlsym(library, name), *strong = dlsym(library, plain);
        bool well = !weak == (since > version) && !strong == (since > version) &&
                    (weak == strong || is_interposed(weak, strong));
        if (!well)
            fprintf(stderr, "%s since %d in %d: %p %p\n", name, since, version, weak, strong);
        CHECK(well);
        rows++;
    }
    fclose(file);
    return rows;
}

/* sizeof(ncclConfig_t) of that release, where commName is known, and where the rest is not even mapped
 * memory. */
static void check_config(const ncclUniqueId *id)
{
    static const struct {
        int since;
        size_t bytes;
    } sizes[] = {{21801, 48}, {22809, 80}, {23203, 120}};
    __typeof__(ncclCommInitRankConfig) *init = function("ncclCommInitRankConfig");
    __typeof__(ncclCommDestroy) *destroy = function("ncclCommDestroy");
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i].since <= version; i++)
        bytes = sizes[i].bytes;
    unsigned char raw[4096];
    ncclConfig_t *config = (ncclConfig_t *)(void *)raw;
    ncclComm_t comm;
    const size_t given[] = {20, 48, bytes, sizeof raw};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        static const ncclConfig_t valid = NCCL_CONFIG_INITIALIZER;
        memset(raw, 0x11, sizeof raw); /* what lies beyond the size is no valid pointer or number */
        memcpy(raw, &valid, given[i] < sizeof valid ? given[i] : sizeof valid);
        memcpy(raw, &given[i], sizeof given[i]);
        CHECK_NCCL(init(&comm, 1, *id, 0, config));
        CHECK_NCCL(destroy(comm));
    }
    config->magic = 1;
    CHECK(init(&comm, 1, *id, 0, config) == ncclInvalidArgument);
}

static void check_types(const ncclUniqueId *id)
{
    __typeof__(ncclCommInitRank) *init = function("ncclCommInitRank");
    __typeof__(ncclAllReduce) *reduce = function("ncclAllReduce");
    __typeof__(ncclCommDestroy) *destroy = function("ncclCommDestroy");
    __typeof__(ncclGetErrorString) *text = function("ncclGetErrorString");
    ncclComm_t comm;
    int *data = device_alloc(sizeof *data);
    CHECK_NCCL(init(&comm, 1, *id, 0));
    CHECK_NCCL(reduce(data, data, 1, ncclBfloat16, ncclSum, comm, NULL));
    ncclResult_t narrow = reduce(data, data, 1, ncclFloat8e5m2, ncclSum, comm, NULL);
    CHECK(narrow == (version >= 22403 ? ncclSuccess : ncclInvalidArgument));
    CHECK(!strcmp(text(ncclTimeout), "unknown result code") == (version < 23003));
    CHECK_NCCL(destroy(comm));
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    version = atoi(argv[2]);
    int told;
    ncclUniqueId id;
    __typeof__(ncclGetVersion) *get_version = function("ncclGetVersion");
    __typeof__(ncclGetUniqueId) *get_id = function("ncclGetUniqueId");
    CHECK_NCCL(get_version(&told));
    CHECK(told == version);
    CHECK(check_exports(argv[3]) > 50);
    CHECK_NCCL(get_id(&id));
    check_config(&id);
    check_types(&id);
    return 0;
}
