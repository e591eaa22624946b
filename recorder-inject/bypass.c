/*
 * Calls that go past the recorder: a library opened with RTLD_DEEPBIND and linked to NCCL resolves its
 * functions in its own dependencies first. Nothing can be done about that from here, but it can be told, to
 * who asks (FREC_VERBOSE): at the end, when the functions that a library has called stand in its table of
 * addresses.
 */
#include "inject.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
enum { SLOT_OF_CALL = R_X86_64_JUMP_SLOT, SLOT_OF_ADDRESS = R_X86_64_GLOB_DAT };
#else
enum { SLOT_OF_CALL = R_AARCH64_JUMP_SLOT, SLOT_OF_ADDRESS = R_AARCH64_GLOB_DAT };
#endif

struct object {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *strings;
    struct table {
        const ElfW(Rela) * entries;
        size_t bytes;
    } calls, addresses;
};

/* glibc leaves absolute addresses in the dynamic section, except in read-only ones. */
static const void *at(const struct object *object, ElfW(Addr) address)
{
    ElfW(Addr) absolute = address < object->base ? object->base + address : address;
    return (const void *)absolute; /* NOLINT: an address */
}

static void read_dynamic(struct object *object, const ElfW(Dyn) * dynamic)
{
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            object->symbols = at(object, dynamic->d_un.d_ptr);
            break;
        case DT_STRTAB:
            object->strings = at(object, dynamic->d_un.d_ptr);
            break;
        case DT_JMPREL:
            object->calls.entries = at(object, dynamic->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            object->calls.bytes = dynamic->d_un.d_val;
            break;
        case DT_RELA:
            object->addresses.entries = at(object, dynamic->d_un.d_ptr);
            break;
        case DT_RELASZ:
            object->addresses.bytes = dynamic->d_un.d_val;
            break;
        default:
            break;
        }
    }
}

/* A function of ours to which the object has NCCL's own address; NULL = none. */
static const char *bypassing(const struct object *object, const struct table *table)
{
    size_t count = table->entries ? table->bytes / sizeof(*table->entries) : 0;
    for (size_t i = 0; i < count; i++) {
        const ElfW(Rela) *slot = &table->entries[i];
        unsigned long type = ELF64_R_TYPE(slot->r_info);
        if (type != SLOT_OF_CALL && type != SLOT_OF_ADDRESS)
            continue;
        const char *name = object->strings + object->symbols[ELF64_R_SYM(slot->r_info)].st_name;
        if (strncmp(name, "nccl", 4) != 0)
            continue;
        const void *value = *(const void *const *)at(object, object->base + slot->r_offset);
        for (int api = 0; api < API_COUNT; api++)
            if (strcmp(name, api_names[api]) == 0 && real_contains(value))
                return name;
    }
    return NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    struct object object = {.base = info->dlpi_addr};
    const ElfW(Phdr) *last = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        last = info->dlpi_phdr[i].p_type == PT_DYNAMIC ? &info->dlpi_phdr[i] : last;
    if (!last || real_contains((const void *)(info->dlpi_addr + last->p_vaddr))) /* NCCL itself */
        return 0;
    read_dynamic(&object, (const void *)(info->dlpi_addr + last->p_vaddr));
    if (!object.symbols || !object.strings)
        return 0;
    const char *name = bypassing(&object, &object.calls);
    if (!name)
        name = bypassing(&object, &object.addresses);
    if (name)
        verbose("%s calls %s past the recorder (opened with RTLD_DEEPBIND?)",
                info->dlpi_name[0] ? info->dlpi_name : "the program", name);
    return 0;
}

void bypass_tell(void)
{
    options.verbose = options.verbose || config_verbose(); /* perhaps no call has come to us at all */
    if (options.verbose && real_exists(API_ncclGetUniqueId))
        dl_iterate_phdr(look, NULL);
}
