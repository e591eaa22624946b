#include "rec/symbolize.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "live/buildid.h"

#define MAX_MODULES      32
#define MAX_TABLE_BYTES  (UINT64_C(256) << 20) /* of one module */
#define MAX_UNSIZED_SPAN 4096                  /* how far a symbol without a size (assembler) may reach */
#define MAX_SEGMENTS     16
#define MAX_NOTE_BYTES   4096

struct symbol {
    uint64_t value, size;
    uint64_t name_at; /* offset of its name in the file */
};

/* Of the file, where its bytes are in the addresses that symbols have. */
struct segment {
    uint64_t offset, bytes, value;
};

struct module {
    char *path;
    int fd;                 /* -1: nothing to read */
    struct symbol *symbols; /* sorted by value, larger size first */
    size_t count;
    uint64_t table_bytes; /* read so far */
    uint64_t used;        /* number of the last use */
    struct segment segments[MAX_SEGMENTS];
    unsigned nsegments;
    char build_id[REC_BUILD_ID_TEXT]; /* in hex; "" = it has none */
};

struct rec_symbolizer {
    struct module modules[MAX_MODULES];
    size_t count;
    uint64_t uses;
};

struct rec_symbolizer *rec_symbolizer_new(void)
{
    return calloc(1, sizeof(struct rec_symbolizer));
}

static void module_close(struct module *module)
{
    if (module->fd >= 0)
        close(module->fd);
    free(module->symbols);
    free(module->path);
}

void rec_symbolizer_free(struct rec_symbolizer *symbolizer)
{
    if (!symbolizer)
        return;
    for (size_t i = 0; i < symbolizer->count; i++)
        module_close(&symbolizer->modules[i]);
    free(symbolizer);
}

static bool read_at(int fd, void *buffer, size_t bytes, uint64_t at)
{
    char *to = buffer;
    while (bytes > 0) {
        if (at > INT64_MAX - bytes)
            return false;
        ssize_t n = pread(fd, to, bytes, (off_t)at);
        if (n <= 0)
            return false;
        to += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

static int by_value(const void *a, const void *b)
{
    const struct symbol *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->size > y->size ? -1 : x->size < y->size;
}

/* Appends the functions of one symbol table. */
static void read_table(struct module *module, const Elf64_Shdr *table, const Elf64_Shdr *strings)
{
    uint64_t count = table->sh_size / sizeof(Elf64_Sym);
    if (table->sh_entsize != sizeof(Elf64_Sym) || count == 0 ||
        table->sh_size > MAX_TABLE_BYTES - module->table_bytes)
        return;
    struct stat status;
    if (fstat(module->fd, &status) != 0 || table->sh_size > (uint64_t)status.st_size)
        return;
    module->table_bytes += table->sh_size;
    Elf64_Sym *raw = malloc(count * sizeof(*raw));
    struct symbol *symbols =
        raw ? reallocarray(module->symbols, module->count + count, sizeof(*symbols)) : NULL;
    if (symbols)
        module->symbols = symbols;
    if (symbols && read_at(module->fd, raw, count * sizeof(*raw), table->sh_offset)) {
        for (uint64_t i = 0; i < count; i++) {
            unsigned type = ELF64_ST_TYPE(raw[i].st_info);
            if ((type != STT_FUNC && type != STT_GNU_IFUNC) || raw[i].st_value == 0 ||
                raw[i].st_name >= strings->sh_size)
                continue;
            symbols[module->count++] =
                (struct symbol){raw[i].st_value, raw[i].st_size, strings->sh_offset + raw[i].st_name};
        }
    }
    free(raw);
}

static void read_sections(struct module *module, const Elf64_Ehdr *elf)
{
    if (elf->e_shentsize != sizeof(Elf64_Shdr) || elf->e_shnum == 0)
        return;
    Elf64_Shdr *sections = calloc(elf->e_shnum, sizeof(*sections));
    if (sections && read_at(module->fd, sections, elf->e_shnum * sizeof(*sections), elf->e_shoff))
        for (unsigned i = 0; i < elf->e_shnum; i++) {
            uint32_t type = sections[i].sh_type;
            if ((type == SHT_SYMTAB || type == SHT_DYNSYM) && sections[i].sh_link < elf->e_shnum)
                read_table(module, &sections[i], &sections[sections[i].sh_link]);
        }
    free(sections);
}

static void read_notes(struct module *module, const Elf64_Phdr *part)
{
    unsigned char notes[MAX_NOTE_BYTES];
    size_t bytes = part->p_filesz < sizeof(notes) ? (size_t)part->p_filesz : sizeof(notes);
    if (read_at(module->fd, notes, bytes, part->p_offset))
        rec_build_id(notes, bytes, module->build_id);
}

static void read_segments(struct module *module, const Elf64_Ehdr *elf)
{
    for (unsigned i = 0; elf->e_phentsize == sizeof(Elf64_Phdr) && i < elf->e_phnum; i++) {
        Elf64_Phdr part;
        if (!read_at(module->fd, &part, sizeof(part), elf->e_phoff + i * sizeof(part)))
            return;
        if (part.p_type == PT_LOAD && module->nsegments < MAX_SEGMENTS)
            module->segments[module->nsegments++] =
                (struct segment){part.p_offset, part.p_filesz, part.p_vaddr};
        else if (part.p_type == PT_NOTE && !module->build_id[0])
            read_notes(module, &part);
    }
}

/* The address, as symbols have it, of a place in the file; 0 = it has none. */
static uint64_t value_of(const struct module *module, uint64_t offset)
{
    for (unsigned i = 0; i < module->nsegments; i++) {
        const struct segment *segment = &module->segments[i];
        if (offset >= segment->offset && offset - segment->offset < segment->bytes)
            return segment->value + (offset - segment->offset);
    }
    return 0;
}

static void module_open(struct module *module)
{
    /* O_NONBLOCK: a FIFO under this name must not block. */
    module->fd = open(module->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    Elf64_Ehdr elf;
    if (module->fd < 0)
        return;
    if (fstat(module->fd, &status) == 0 && S_ISREG(status.st_mode) &&
        read_at(module->fd, &elf, sizeof(elf), 0) && memcmp(elf.e_ident, ELFMAG, SELFMAG) == 0 &&
        elf.e_ident[EI_CLASS] == ELFCLASS64 && elf.e_ident[EI_DATA] == ELFDATA2LSB) {
        read_segments(module, &elf);
        read_sections(module, &elf);
    }
    if (module->count)
        qsort(module->symbols, module->count, sizeof(*module->symbols), by_value);
}

/* The module's tables, read on first use; the least used one makes room. */
static struct module *module_of(struct rec_symbolizer *symbolizer, const char *path)
{
    struct module *oldest = &symbolizer->modules[0];
    for (size_t i = 0; i < symbolizer->count; i++) {
        struct module *module = &symbolizer->modules[i];
        if (strcmp(module->path, path) == 0) {
            module->used = ++symbolizer->uses;
            return module;
        }
        if (module->used < oldest->used)
            oldest = module;
    }
    char *copy = strdup(path);
    if (!copy)
        return NULL;
    struct module *module = oldest;
    if (symbolizer->count < MAX_MODULES)
        module = &symbolizer->modules[symbolizer->count++];
    else
        module_close(oldest);
    *module = (struct module){.path = copy, .fd = -1, .used = ++symbolizer->uses};
    module_open(module);
    return module;
}

/* The symbol that covers an address: the last one that begins at or before it. */
static const struct symbol *symbol_at(const struct module *module, uint64_t address)
{
    size_t low = 0, high = module->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (module->symbols[middle].value <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const struct symbol *symbol = &module->symbols[low - 1];
    while (symbol > module->symbols && symbol[-1].value == symbol->value)
        symbol--; /* of those that begin together the one with the largest size */
    uint64_t span = symbol->size ? symbol->size : MAX_UNSIZED_SPAN;
    return address - symbol->value < span ? symbol : NULL;
}

/* The name of what covers the byte before offset, or false. */
static bool name_before(const struct module *module, uint64_t offset, char *buffer, size_t size)
{
    if (module->count == 0 || offset == 0)
        return false;
    /* A call that never returns may be the last instruction of its function. */
    uint64_t value = value_of(module, offset - 1);
    const struct symbol *symbol = value ? symbol_at(module, value) : NULL;
    if (!symbol)
        return false;
    char name[512];
    ssize_t n = pread(module->fd, name, sizeof(name) - 1, (off_t)symbol->name_at);
    if (n <= 0)
        return false;
    name[n] = '\0';
    if (name[0] == '\0')
        return false;
    snprintf(buffer, size, "%s+0x%llx", name, (unsigned long long)(value + 1 - symbol->value));
    return true;
}

enum rec_symbol rec_symbolize_frame(struct rec_symbolizer *symbolizer, const struct rec_source_frame *frame,
                                    char *buffer, size_t size)
{
    if (size)
        buffer[0] = '\0';
    const struct module *module = frame->file[0] == '/' ? module_of(symbolizer, frame->file) : NULL;
    if (!module)
        return REC_SYMBOL_NONE;
    if (frame->build_id && frame->build_id[0] && module->build_id[0] &&
        strcmp(frame->build_id, module->build_id) != 0)
        return REC_SYMBOL_OTHER_BUILD;
    return name_before(module, frame->offset, buffer, size) ? REC_SYMBOL_FOUND : REC_SYMBOL_NONE;
}

bool rec_symbolize(struct rec_symbolizer *symbolizer, const char *module, uint64_t offset, char *buffer,
                   size_t size)
{
    struct rec_source_frame frame = {.file = module, .offset = offset};
    return rec_symbolize_frame(symbolizer, &frame, buffer, size) == REC_SYMBOL_FOUND;
}
