/*
 * Figures of the trace format: encode ns/op, decode ops/s, bytes/op, for synthetic calls.
 *
 * usage: frec-bench [OPS [FLUSH_EVERY]]     (defaults 1000000 and 2500 ops)
 *
 * Not a test: it prints what it measured and judges nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rec/reader.h"
#include "synth.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const char *what, const struct rec_error *err)
{
    fprintf(stderr, "frec-bench: %s: %s\n", what, err->text);
    return 1;
}

static int measure(const char *name, enum synth_pattern pattern, const char *dir, size_t count,
                   size_t flush_every, bool sites)
{
    struct rec_writer_config config = {0};
    struct rec_error err = {0};
    struct synth synth;
    struct rec_op *ops = calloc(count, sizeof(*ops));
    void *memory = aligned_alloc(64, rec_writer_bytes(&config));
    if (!ops || !memory)
        return 1;
    synth_init(&synth, pattern, 0, 8);
    synth.sites = sites;
    for (size_t i = 0; i < count; i++)
        synth_op(&synth, &ops[i]);

    struct rec_writer *writer = rec_writer_init(memory, &config);
    if (rec_writer_open(writer, dir, name, "{}", 2, &err) != REC_OK)
        return fail(dir, &err);
    synth_define(&synth, writer);
    rec_writer_callsites(writer, synth_callsite, NULL);
    double start = seconds();
    for (size_t done = 0; done < count;) {
        /* Runs of up to a chunk, as the drain thread finds them. */
        size_t n = 128 - done % 128;
        if (n > count - done)
            n = count - done;
        rec_writer_ops(writer, ops + done, n);
        done += n;
        if (done % flush_every < n && rec_writer_flush(writer, &err) != REC_OK)
            return fail(name, &err);
    }
    if (rec_writer_close(writer, &err) != REC_OK)
        return fail(name, &err);
    double encode = seconds() - start;
    struct rec_writer_status status;
    rec_writer_status(writer, &status);

    char path[4096];
    snprintf(path, sizeof(path), "%s/%s.frec", dir, name);
    struct rec_reader *reader;
    start = seconds();
    if (rec_reader_open(path, &reader, &err) != REC_OK)
        return fail(path, &err);
    struct rec_event event;
    uint64_t read = 0;
    while (rec_reader_next(reader, &event, &err) == REC_OK)
        read += event.type == REC_EV_OP;
    double decode = seconds() - start;
    rec_reader_close(reader);
    unlink(path);
    printf("%-8s %8zu ops  flush every %5zu  %6.2f bytes/op  encode %6.1f ns/op  decode %6.2f Mops/s%s\n",
           name, count, flush_every, (double)status.file_bytes / (double)count, encode * 1e9 / (double)count,
           (double)read / decode * 1e-6, read == count ? "" : "  LOST OPS");
    free(ops);
    free(memory);
    return read != count;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    size_t flush_every = argc > 2 ? strtoull(argv[2], NULL, 10) : 2500;
    char dir[] = "/tmp/frec-bench-XXXXXX";
    if (!mkdtemp(dir) || !count || !flush_every)
        return 2;
    struct rec_writer_config config = {0};
    printf("writer memory: %.2f MiB\n", (double)rec_writer_bytes(&config) / (1 << 20));
    int failed = measure("train", SYNTH_TRAIN, dir, count, flush_every, false) |
                 measure("sites", SYNTH_TRAIN, dir, count, flush_every, true) |
                 measure("moe", SYNTH_MOE, dir, count, flush_every, false) |
                 measure("plain", SYNTH_PLAIN, dir, count, flush_every, false);
    rmdir(dir);
    return failed;
}
