/* Names for addresses, from real and from broken ELF files. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "maker.h"
#include "rec/symbolize.h"

__attribute__((noinline)) static int known_function(int x)
{
    return x * 3 + 1;
}

static int first_base(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uintptr_t *)arg = info->dlpi_addr;
    return 1; /* the first module is the program */
}

static uint64_t known_offset(void)
{
    uintptr_t base = 0;
    dl_iterate_phdr(first_base, &base);
    return (uintptr_t)known_function - base;
}

static void test_own_function(void **state)
{
    (void)state;
    char exe[512], text[64];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    assert_true(n > 0);
    exe[n] = '\0';
    uint64_t offset = known_offset();
    struct rec_symbolizer *symbolizer = rec_symbolizer_new();
    assert_non_null(symbolizer);
    for (int i = 0; i < 2; i++) { /* again from the cache */
        assert_true(rec_symbolize(symbolizer, exe, offset + 4, text, sizeof(text)));
        assert_string_equal(text, "known_function+0x4");
    }
    assert_true(rec_symbolize(symbolizer, exe, offset + 4, text, 6));
    assert_string_equal(text, "known");
    assert_false(rec_symbolize(symbolizer, exe, 0, text, sizeof(text)));
    assert_false(rec_symbolize(symbolizer, exe, UINT64_MAX, text, sizeof(text)));
    assert_string_equal(text, "");
    assert_false(rec_symbolize(symbolizer, "/nonexistent", offset, text, sizeof(text)));
    assert_false(rec_symbolize(symbolizer, "relative", offset, text, sizeof(text)));
    assert_false(rec_symbolize(symbolizer, "/dev/zero", offset, text, sizeof(text)));
    rec_symbolizer_free(symbolizer);
    assert_int_equal(known_function(1), 4);
}

static char *read_self(size_t *size)
{
    struct stat info;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    char *image = malloc((size_t)info.st_size);
    assert_non_null(image);
    assert_int_equal(read(fd, image, (size_t)info.st_size), info.st_size);
    close(fd);
    *size = (size_t)info.st_size;
    return image;
}

/* Flips every byte of the headers in turn, and cuts the file at many places. */
static void test_broken_files(void **state)
{
    (void)state;
    char dir[64], path[128], text[64];
    size_t size;
    char *image = read_self(&size);
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)(const void *)image;
    size_t sections = (size_t)elf->e_shoff, section_bytes = (size_t)elf->e_shnum * sizeof(Elf64_Shdr);
    maker_dir(dir, sizeof(dir));
    snprintf(path, sizeof(path), "%s/module", dir);
    FILE *file = fopen(path, "w+e");
    assert_non_null(file);
    assert_int_equal(fwrite(image, 1, size, file), size);
    fflush(file);
    uint64_t known = known_offset() + 4;
    int answers = 0;
    for (size_t i = 0; i < sizeof(*elf) + section_bytes; i += i < sizeof(*elf) ? 1 : 7) {
        size_t at = i < sizeof(*elf) ? i : sections + i - sizeof(*elf);
        char flipped = (char)(image[at] ^ (i % 2 ? 0x80 : 0xff));
        assert_int_equal(pwrite(fileno(file), &flipped, 1, (off_t)at), 1);
        struct rec_symbolizer *symbolizer = rec_symbolizer_new();
        answers += rec_symbolize(symbolizer, path, known, text, sizeof(text));
        for (uint64_t offset = 1; offset < 1 << 20; offset = offset * 3 + 1)
            rec_symbolize(symbolizer, path, offset, text, sizeof(text));
        rec_symbolizer_free(symbolizer);
        assert_int_equal(pwrite(fileno(file), &image[at], 1, (off_t)at), 1);
    }
    assert_true(answers > 0);
    for (size_t length = size; length > 0; length = length * 3 / 4) {
        assert_int_equal(ftruncate(fileno(file), (off_t)length), 0);
        struct rec_symbolizer *symbolizer = rec_symbolizer_new();
        rec_symbolize(symbolizer, path, 0x2000, text, sizeof(text));
        rec_symbolizer_free(symbolizer);
    }
    fclose(file);
    free(image);
    maker_clean(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_function),
        cmocka_unit_test(test_broken_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
