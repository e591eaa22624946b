/* The snapshot as plain text, for pipes and logs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fr-top/diagnosis.h"
#include "fr-top/top.h"
#include "fr-common.h"

static uint64_t age(const struct top_snapshot *snapshot, uint64_t since_ns)
{
    return since_ns != 0 && snapshot->now_ns > since_ns ? snapshot->now_ns - since_ns : 0;
}

static void write_verdict(const struct top_verdict *verdict)
{
    char summary[4096];
    if (verdict == NULL || verdict->serial == 0)
        return;
    printf("verdict: %s (%s)", rec_verdict_type_name(verdict->type),
           rec_confidence_name(verdict->confidence));
    if (verdict->status != REC_STATUS_HEALTHY || verdict->type == REC_VERDICT_STRAGGLER)
        printf(": %s", fr_clean(summary, sizeof summary, verdict->summary));
    putchar('\n');
}

static void write_head(const struct top_snapshot *snapshot)
{
    char job[512], ops[16], bytes[16];
    top_text_count(ops, sizeof ops, snapshot->ops_per_s);
    top_text_count(bytes, sizeof bytes, snapshot->bytes_per_s);
    printf("job %s\n", snapshot->nprocesses > 0 ? fr_clean(job, sizeof job, snapshot->job) : "-");
    printf("ranks %u up", snapshot->up);
    if (snapshot->world > 0)
        printf(" of %u", snapshot->world);
    printf(", %u stalled, %u ended; hosts %u; communicators %u\n", snapshot->stuck, snapshot->ended,
           snapshot->nhosts, snapshot->ncomms);
    printf("ops/s %s, bytes/s %s, lost ops %llu\n", ops, bytes, (unsigned long long)snapshot->lost);
    if (snapshot->nabsent > 0) {
        char ranks[256];
        fr_fold_ranks(ranks, sizeof ranks, snapshot->absent, snapshot->nabsent);
        printf("absent ranks: %s\n", ranks);
    }
    write_verdict(snapshot->verdict);
    bool inside = snapshot->oldest != TOP_NONE;
    if (!inside && snapshot->oldest_gpu == TOP_NONE)
        return;
    const struct top_process *process =
        &snapshot->processes[inside ? snapshot->oldest : snapshot->oldest_gpu];
    char op[32], rank[16], open[16], host[512];
    top_text_op(op, sizeof op, &process->now.op);
    top_text_rank(rank, sizeof rank, process);
    top_text_age(open, sizeof open, age(snapshot, process->now.since_ns));
    printf("%s: %s on rank %s (%s) for %s\n",
           inside ? "oldest open call" : "oldest call not finished on a GPU", op, rank,
           fr_clean(host, sizeof host, process->host), open);
}

static void write_rank(const struct top_snapshot *snapshot, const struct top_process *process)
{
    char rank[16], op[32], since[16] = "-", comm[64] = "-", clean_comm[256], host[512], seq[24] = "-",
                           rate[16], end[64];
    top_text_rank(rank, sizeof rank, process);
    top_text_op(op, sizeof op, &process->now.op);
    if (process->now.since_ns != 0)
        top_text_age(since, sizeof since, age(snapshot, process->now.since_ns));
    if (process->now.member != TOP_NONE && process->now.member < process->nmembers) {
        const struct top_member *member = &snapshot->members[process->first_member + process->now.member];
        top_text_comm(comm, sizeof comm, member->name, member->uid);
        snprintf(seq, sizeof seq, "%llu", (unsigned long long)process->now.op.seq);
    }
    top_text_count(rate, sizeof rate, process->ops_per_s);
    top_text_end(end, sizeof end, process);
    const char *where = top_text_where(&process->now.op);
    const char *role = rec_role_name(top_role_of(snapshot->verdict, process));
    printf("%5s %-16s %8d %-8s %-7s %-14s %-5s %7s %-12s %9s %6llu %7s %6llu%s%s\n", rank,
           fr_clean(host, sizeof host, process->host), process->pid, top_state_name(process->state), role, op,
           where, since, fr_clean(clean_comm, sizeof clean_comm, comm), seq, (unsigned long long)process->lag,
           rate, (unsigned long long)process->lost, end[0] != '\0' ? "  " : "", end);
}

static void write_comm(const struct top_snapshot *snapshot, const struct top_comm *comm)
{
    char name[64], clean[256], ranks[16];
    uint32_t behind = TOP_NONE;
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        const struct top_member *member = &snapshot->members[comm->members[m]];
        if (member->lag > 0 && (behind == TOP_NONE || member->lag > snapshot->members[behind].lag))
            behind = comm->members[m];
    }
    top_text_comm(name, sizeof name, comm->name, comm->uid);
    printf("%-16s %5u/%-5u %12llu %8llu %8u", fr_clean(clean, sizeof clean, name), comm->nmembers,
           comm->nranks, (unsigned long long)(comm->front > 0 ? comm->front - 1 : 0),
           (unsigned long long)(comm->front - comm->back), comm->lagging);
    if (behind != TOP_NONE) {
        top_text_rank(ranks, sizeof ranks, &snapshot->processes[snapshot->members[behind].process]);
        printf("  %s", ranks);
    }
    putchar('\n');
}

int top_write_text(const struct top_snapshot *snapshot)
{
    write_head(snapshot);
    if (snapshot->nprocesses > 0)
        printf("\n%5s %-16s %8s %-8s %-7s %-14s %-5s %7s %-12s %9s %6s %7s %6s\n", "RANK", "HOST", "PID",
               "STATE", "VERDICT", "OP", "AT", "FOR", "COMM", "SEQ", "LAG", "OPS/S", "LOST");
    for (uint32_t i = 0; i < snapshot->nprocesses; i++)
        write_rank(snapshot, &snapshot->processes[i]);
    if (snapshot->ncomms > 0)
        printf("\n%-16s %11s %12s %8s %8s  %s\n", "COMM", "MEMBERS", "FRONT", "SPREAD", "LAGGING", "LAST");
    for (uint32_t i = 0; i < snapshot->ncomms; i++)
        write_comm(snapshot, &snapshot->comms[i]);
    return 0;
}
