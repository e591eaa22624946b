/* libFuzzer target: an ELF file whose symbols are asked for. Small programs are a good corpus. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rec/symbolize.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], name[128];
    snprintf(path, sizeof(path), "/dev/shm/fuzz-%d.elf", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    struct rec_symbolizer *symbolizer = rec_symbolizer_new();
    if (!symbolizer)
        abort();
    for (unsigned bits = 0; bits < 64; bits++)
        rec_symbolize(symbolizer, path, UINT64_MAX >> bits, name, sizeof(name));
    rec_symbolizer_free(symbolizer);
    unlink(path);
    return 0;
}
