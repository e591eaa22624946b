#include "stacks.h"

#include "callsite/call.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096u

/* ---- small parsing: no library function that could lock or allocate -------------------------- */

static uint64_t parse_hex(const char **at)
{
    uint64_t value = 0;
    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return value;
    }
}

static uint64_t parse_decimal(const char **at)
{
    uint64_t value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        value = value * 10 + (uint64_t)(**at - '0');
    return value;
}

static char *append_decimal(char *out, uint64_t value)
{
    char digits[20];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0)
        *out++ = digits[--n];
    *out = '\0';
    return out;
}

static size_t read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    size_t length = n > 0 ? (size_t)n : 0;
    out[length] = '\0';
    return length;
}

/* ---- executable mappings ------------------------------------------------------------------------ */

/* "start-end perms offset device inode  path" (proc(5)); ranges come in rising order. */
static void take_line(struct stacks *stacks, const char *line)
{
    const char *at = line;
    uint64_t start = parse_hex(&at);
    if (*at++ != '-')
        return;
    uint64_t end = parse_hex(&at);
    if (strlen(at) < 6)
        return;
    bool code = at[3] == 'x';
    at += 6;
    struct code_range range = {.start = start, .end = end, .offset = parse_hex(&at)};
    at += strspn(at, " ");
    uint64_t device = parse_hex(&at) << 32;
    at += *at == ':';
    device |= parse_hex(&at);
    at += strspn(at, " ");
    uint64_t inode = parse_decimal(&at);
    at += strspn(at, " ");
    if (range.offset == 0) {
        stacks->head.start = start;
        stacks->head.device = device;
        stacks->head.inode = inode;
    }
    if (!code || stacks->nranges >= STACKS_RANGES)
        return;
    if (inode && inode == stacks->head.inode && device == stacks->head.device)
        range.head = stacks->head.start;
    size_t length = strlen(at) + 1;
    /* Neighbours mostly belong to one file. */
    const struct code_range *last = stacks->nranges ? &stacks->ranges[stacks->nranges - 1] : NULL;
    if (length > 1 && last && last->path && strcmp(stacks->paths + last->path, at) == 0) {
        range.path = last->path;
    } else if (length > 1 && stacks->paths_used + length <= sizeof(stacks->paths)) {
        memcpy(stacks->paths + stacks->paths_used, at, length);
        range.path = stacks->paths_used;
        stacks->paths_used += (uint32_t)length;
    }
    stacks->ranges[stacks->nranges++] = range;
}

void stacks_read_maps(struct stacks *stacks)
{
    stacks->nranges = 0;
    stacks->nmodules = 0;
    stacks->paths_used = 1;
    memset(stacks->build_ids, 0, sizeof(stacks->build_ids)); /* another file may have come to an address */
    memset(&stacks->head, 0, sizeof(stacks->head));
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    size_t have = 0;
    for (ssize_t n; (n = read(fd, stacks->text + have, sizeof(stacks->text) - 1 - have)) > 0;) {
        have += (size_t)n;
        stacks->text[have] = '\0';
        char *line = stacks->text;
        for (char *newline; (newline = strchr(line, '\n')); line = newline + 1) {
            *newline = '\0';
            take_line(stacks, line);
        }
        have -= (size_t)(line - stacks->text);
        memmove(stacks->text, line, have);
        if (have == sizeof(stacks->text) - 1)
            have = 0; /* a line longer than any path: give it up */
    }
    close(fd);
}

static struct code_range *find_range(struct stacks *stacks, uint64_t address)
{
    uint32_t low = 0, high = stacks->nranges;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (stacks->ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < stacks->nranges && address >= stacks->ranges[low].start ? &stacks->ranges[low] : NULL;
}

static uint32_t module_of(struct stacks *stacks, struct code_range *range)
{
    if (!range->path)
        return REC_ID_NONE;
    if (range->module)
        return range->module - 1;
    const char *path = stacks->paths + range->path;
    uint32_t module = 0;
    while (module < stacks->nmodules && stacks->modules[module] != path)
        module++;
    if (module == STACKS_MODULES)
        return REC_ID_NONE;
    if (module == stacks->nmodules)
        stacks->modules[stacks->nmodules++] = path;
    range->module = module + 1;
    return module;
}

const char *stacks_find_file(const struct stacks *stacks, const char *name)
{
    for (uint32_t i = 0; i < stacks->nranges; i++) {
        const char *path = stacks->paths + stacks->ranges[i].path;
        const char *slash = stacks->ranges[i].path ? strrchr(path, '/') : NULL;
        if (slash && strncmp(slash + 1, name, strlen(name)) == 0)
            return path;
    }
    return NULL;
}

static void set_frame(struct stacks *stacks, struct code_range *range, uint64_t address,
                      struct rec_frame *frame)
{
    frame->module = module_of(stacks, range);
    frame->offset = frame->module == REC_ID_NONE ? address : range->offset + (address - range->start);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

/* Page by page, so that the end of the mapping costs only what lies beyond it. */
static size_t read_memory(uint64_t from, void *out, size_t bytes)
{
    struct iovec remote[STACKS_BYTES / PAGE + 1], local = {out, bytes};
    unsigned long count = 0;
    for (size_t done = 0; done < bytes;) {
        size_t step = PAGE - (size_t)((from + done) % PAGE);
        if (step > bytes - done)
            step = bytes - done;
        remote[count++] = (struct iovec){(void *)(uintptr_t)(from + done), step};
        done += step;
    }
    ssize_t n = process_vm_readv(recorder.pid, &local, 1, remote, count, 0);
    return n > 0 ? (size_t)n : 0;
}

/* ---- build ids ------------------------------------------------------------------------------------ */

/* Out of the ELF file that is mapped at head: of what runs, whatever lies under its path now. */
static void read_build_id(uint64_t head, char *text)
{
    enum { MOST_PARTS = 32 };
    Elf64_Ehdr elf;
    Elf64_Phdr parts[MOST_PARTS];
    unsigned char notes[1024];
    uint64_t first = UINT64_MAX;
    text[0] = '\0';
    if (read_memory(head, &elf, sizeof(elf)) != sizeof(elf) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
        elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_phentsize != sizeof(parts[0]))
        return;
    unsigned count = elf.e_phnum < MOST_PARTS ? elf.e_phnum : MOST_PARTS;
    if (read_memory(head + elf.e_phoff, parts, count * sizeof(parts[0])) != count * sizeof(parts[0]))
        return;
    for (unsigned i = 0; i < count; i++)
        if (parts[i].p_type == PT_LOAD && parts[i].p_offset == 0)
            first = parts[i].p_vaddr;
    for (unsigned i = 0; i < count && first != UINT64_MAX && !text[0]; i++) {
        if (parts[i].p_type != PT_NOTE)
            continue;
        size_t bytes = parts[i].p_memsz < sizeof(notes) ? (size_t)parts[i].p_memsz : sizeof(notes);
        rec_build_id(notes, read_memory(head + (parts[i].p_vaddr - first), notes, bytes), text);
    }
}

static const char *build_id_of(struct stacks *stacks, uint64_t head)
{
    if (!head)
        return "";
    for (uint32_t i = 0; i < STACKS_BUILD_IDS; i++)
        if (stacks->build_ids[i].head == head)
            return stacks->build_ids[i].text;
    struct build_id *id = &stacks->build_ids[stacks->next_build_id++ % STACKS_BUILD_IDS];
    id->head = head;
    read_build_id(head, id->text);
    return id->text;
}

bool stacks_locate(struct stacks *stacks, uint64_t address, struct rec_source_frame *frame)
{
    const struct code_range *range = find_range(stacks, address);
    if (!range || !range->path)
        return false;
    frame->file = stacks->paths + range->path;
    frame->offset = range->offset + (address - range->start);
    frame->build_id = build_id_of(stacks, range->head);
    return true;
}

/* ---- which words are return addresses --------------------------------------------------------------- */

/* Is the instruction before this address a call? */
static bool follows_call(uint64_t address)
{
    unsigned char code[CALL_BYTES];
    return read_memory(address - sizeof(code), code, sizeof(code)) == sizeof(code) &&
           call_ends(address, code);
}

uint32_t stacks_scan(struct stacks *stacks, uint64_t pc, uint64_t sp, struct rec_frame *frames, uint64_t *pcs)
{
    uint32_t count = 0;
    struct code_range *range = find_range(stacks, pc);
    if (pc && pcs)
        pcs[count] = pc;
    if (pc && range)
        set_frame(stacks, range, pc, &frames[count++]);
    else if (pc)
        frames[count++] = (struct rec_frame){REC_ID_NONE, pc};

    sp = (sp + 7) & ~UINT64_C(7);
    size_t words = sp ? read_memory(sp, stacks->words, sizeof(stacks->words)) / 8 : 0;
    for (size_t i = 0; i < words && count < STACKS_FRAMES; i++) {
        uint64_t address = stacks->words[i];
#if defined(__aarch64__)
        address &= (UINT64_C(1) << 48) - 1; /* without a pointer authentication code */
#endif
        range = find_range(stacks, address);
        if (!range || address == range->start || !follows_call(address))
            continue;
        if (pcs)
            pcs[count] = address;
        set_frame(stacks, range, address, &frames[count++]);
    }
    return count;
}

/* ---- threads ------------------------------------------------------------------------------------------ */

/* The calls in which threads of NCCL jobs wait; others are named by number. */
static const struct {
    long number;
    const char *name;
} syscall_names[] = {
    {SYS_futex, "futex"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_pread64, "pread64"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_fsync, "fsync"},
    {SYS_openat, "openat"},
    {SYS_close, "close"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_connect, "connect"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_ioctl, "ioctl"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_munmap, "munmap"},
    {SYS_mmap, "mmap"},
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_pause, "pause"},
#endif
};

static void name_syscall(char *where, uint64_t number)
{
    for (size_t i = 0; i < sizeof(syscall_names) / sizeof(syscall_names[0]); i++)
        if ((uint64_t)syscall_names[i].number == number) {
            strcpy(where, syscall_names[i].name);
            return;
        }
    append_decimal(stpcpy(where, "syscall "), number);
}

static char *task_path(char *out, uint64_t tid, const char *file)
{
    stpcpy(append_decimal(stpcpy(out, "/proc/self/task/"), tid), file);
    return out;
}

static void read_stat(struct stacks *stacks, uint64_t tid, struct rec_stall_thread *thread)
{
    char path[64];
    read_text(task_path(path, tid, "/stat"), stacks->text, sizeof(stacks->text));
    char *name = strchr(stacks->text, '('), *end = strrchr(stacks->text, ')');
    if (!name || !end || end[1] != ' ')
        return;
    thread->state = end[2];
    *end = '\0';
    strncpy(thread->name, name + 1, sizeof(thread->name) - 1);
}

/*
 * proc(5), /proc/PID/syscall: "number arg0 … arg5 sp pc" of a thread blocked in a system call,
 * "-1 sp pc" of one blocked otherwise, "running". A running thread may be caught at rest a moment
 * later.
 */
static bool read_syscall(struct stacks *stacks, uint64_t tid, struct rec_stall_thread *thread, uint64_t *pc,
                         uint64_t *sp)
{
    char path[64];
    task_path(path, tid, "/syscall");
    for (int tries = 0; tries < 3; tries++) {
        if (read_text(path, stacks->text, sizeof(stacks->text)) == 0)
            return false;
        if (stacks->text[0] != 'r')
            break;
        if (tries < 2)
            syscall(SYS_sched_yield);
    }
    const char *at = stacks->text;
    if (*at == 'r') {
        strcpy(thread->where, "running");
        return false;
    }
    bool in_call = *at != '-';
    if (in_call)
        name_syscall(thread->where, parse_decimal(&at));
    else
        at += 2;
    uint64_t last[2] = {0, 0};
    while ((at = strstr(at, "0x"))) {
        at += 2;
        last[0] = last[1];
        last[1] = parse_hex(&at);
    }
    *sp = last[0];
    *pc = last[1];
    return *sp != 0;
}

/* Where the stack of this thread stood at its last NCCL call; 0 = it never made one. */
static uint64_t last_call_stack(uint64_t tid)
{
    const struct thread_mark *mark = thread_mark_of((int32_t)tid);
    return mark ? atomic_load_explicit(&mark->stack, memory_order_relaxed) : 0;
}

static void read_wchan(struct stacks *stacks, uint64_t tid, struct rec_stall_thread *thread)
{
    char path[64];
    size_t length = read_text(task_path(path, tid, "/wchan"), stacks->text, sizeof(stacks->text));
    if (length == 0 || strcmp(stacks->text, "0") == 0)
        return;
    size_t used = strlen(thread->where);
    size_t room = sizeof(thread->where) - used - 1;
    if (used && room > 2) {
        strcpy(thread->where + used, ", ");
        used += 2;
        room -= 2;
    }
    memcpy(thread->where + used, stacks->text, length < room ? length : room);
}

static void read_thread(struct stacks *stacks, uint64_t tid, uint32_t index)
{
    struct rec_stall_thread *thread = &stacks->threads[index];
    uint64_t pc = 0, sp = 0;
    *thread = (struct rec_stall_thread){.tid = (int32_t)tid, .state = '?', .frames = stacks->frames[index]};
    read_stat(stacks, tid, thread);
    if (read_syscall(stacks, tid, thread, &pc, &sp)) {
        thread->nframes = stacks_scan(stacks, pc, sp, stacks->frames[index], NULL);
    } else if (thread->where[0] == 'r' && (sp = last_call_stack(tid)) != 0) {
        /* On a CPU, so nobody knows its registers: waiting for a GPU is often a busy loop. Its callers
         * up to the loop that calls NCCL are mostly those of the last NCCL call. */
        strcpy(thread->where, "running; stack of its last NCCL call");
        thread->nframes = stacks_scan(stacks, 0, sp, stacks->frames[index], NULL);
    }
    read_wchan(stacks, tid, thread);
}

uint32_t stacks_read_threads(struct stacks *stacks, int skip)
{
    uint32_t count = 0;
    int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    /* getdents64 by hand: opendir allocates. */
    struct entry {
        uint64_t inode, offset;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    _Alignas(8) char buffer[2048];
    for (long n; count < STACKS_THREADS && (n = syscall(SYS_getdents64, fd, buffer, sizeof(buffer))) > 0;)
        for (long at = 0; at < n && count < STACKS_THREADS;) {
            const struct entry *entry = (const struct entry *)(buffer + at);
            const char *name = entry->name;
            at += entry->length;
            uint64_t tid = parse_decimal(&name);
            if (tid != 0 && (int64_t)tid != skip)
                read_thread(stacks, tid, count++);
        }
    close(fd);
    return count;
}
